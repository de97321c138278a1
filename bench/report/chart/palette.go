package chart

import (
	"fmt"
	"html/template"
	"strings"
)

// Slots is the number of colours and of forms of marks.
const Slots = 10

// Theme is a set of colours in the form #rrggbb.
type Theme struct {
	// Page is the background of the page, Panel that of charts and tables.
	Page, Panel string
	// Text and Muted are text colours. Line is for axes and borders, Grid for grid
	// lines.
	Text, Muted, Line, Grid string
	// Accent is for links, buttons and the focus.
	Accent string
	// Good, Warn and Bad are the colours of verdicts.
	Good, Warn, Bad string
	// Series are the colours of the slots.
	Series [Slots]string
	// Cold and Hot are the ends of the heat map's scale.
	Cold, Hot string
	// OnCold and OnHot are the text colours on its two halves.
	OnCold, OnHot string
}

// The themes. A test requires a contrast of 4.5 for text and 3 for graphics (WCAG 2.2,
// 1.4.3 and 1.4.11). It also requires a distance between the series' colours.
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

// CSS returns the colours of both themes as custom properties. The theme follows the
// system unless the root element has data-theme. Print uses the light theme.
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
