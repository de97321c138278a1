// Package browser looks at HTML reports in a real, headless Chromium. It is a
// module of its own, as what drives the browser is for tests alone.
package browser
