package chart

import (
	"fmt"
	"html/template"
	"strings"
)

// Slots is how many colours, and forms of marks, there are.
const Slots = 10

// Theme is a set of colours, each as #rrggbb.
type Theme struct {
	Page, Panel             string
	Text, Muted, Line, Grid string
	Accent                  string
	Good, Warn, Bad         string
	Series                  [Slots]string
	Cold, Hot               string
	OnCold, OnHot           string
}

// The themes. A test holds words to a contrast of 4.5 and drawings to one of 3
// (WCAG 2.2, 1.4.3 and 1.4.11), and the series apart from each other.
var (
	Light = Theme{
		Page: "#f6f7f9", Panel: "#ffffff",
		Text: "#171b21", Muted: "#545d69", Line: "#868f9b", Grid: "#e3e7ec",
		Accent: "#0b5fc4",
		Good:   "#14713a", Warn: "#8a5800", Bad: "#b3202c",
		Series: [Slots]string{"#1f6fd0", "#c4500a", "#15803d", "#8a3fd1", "#0b7f8c", "#c2264f", "#856400", "#b0339b", "#59636f", "#3b3fb5"},
		Cold:   "#edf3fb", Hot: "#134a8e", OnCold: "#171b21", OnHot: "#ffffff",
	}
	Dark = Theme{
		Page: "#0f1216", Panel: "#181c22",
		Text: "#e9edf2", Muted: "#a3adb9", Line: "#6d7784", Grid: "#2a3038",
		Accent: "#7db7ff",
		Good:   "#5fd38a", Warn: "#e8b94a", Bad: "#ff8a8f",
		Series: [Slots]string{"#62a8ff", "#ff9350", "#4cc878", "#c99bff", "#3fcfd8", "#ff7d97", "#dcb53a", "#f58be0", "#a6b0bc", "#9299ff"},
		Cold:   "#1d2733", Hot: "#8ec5ff", OnCold: "#e9edf2", OnHot: "#0f1216",
	}
)

// CSS gives the colours of both themes as custom properties: the dark one where
// the system prefers it, unless data-theme on the root element says otherwise, and
// the light one in print.
func CSS() template.CSS {
	var b strings.Builder
	fmt.Fprintf(&b, ":root{color-scheme:light;%s}\n", properties(Light))
	fmt.Fprintf(&b, "@media screen and (prefers-color-scheme:dark){:root:not([data-theme=light]){color-scheme:dark;%s}}\n", properties(Dark))
	fmt.Fprintf(&b, "@media screen{:root[data-theme=dark]{color-scheme:dark;%s}}\n", properties(Dark))
	for i := range Slots {
		fmt.Fprintf(&b, ".s%d{--c:var(--s%d)}", i, i)
	}
	b.WriteString("\n")
	return template.CSS(b.String())
}

func properties(t Theme) string {
	var b strings.Builder
	for _, p := range [][2]string{
		{"page", t.Page}, {"panel", t.Panel}, {"text", t.Text}, {"muted", t.Muted}, {"line", t.Line}, {"grid", t.Grid},
		{"accent", t.Accent}, {"good", t.Good}, {"warn", t.Warn}, {"bad", t.Bad},
		{"cold", t.Cold}, {"hot", t.Hot}, {"on-cold", t.OnCold}, {"on-hot", t.OnHot},
	} {
		fmt.Fprintf(&b, "--%s:%s;", p[0], p[1])
	}
	for i, c := range t.Series {
		fmt.Fprintf(&b, "--s%d:%s;", i, c)
	}
	return b.String()
}
