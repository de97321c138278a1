package chart

import (
	_ "embed"
	"fmt"
	"hash/fnv"
	"strings"
)

// Colour is a colour in hexadecimal form, for a light and for a dark background.
type Colour struct{ Light, Dark string }

// colours has six for variants and, from baselines on, four blues and greys for upstream's. With
// deuteranopia all of them differ (colour_test.go).
var colours = [...]Colour{
	{"#872d01", "#f09d34"}, {"#2d824c", "#77ca98"}, {"#943e95", "#ca779a"}, {"#a68313", "#f7d466"}, {"#32a192", "#91f9e6"}, {"#62060b", "#f1192b"},
	{"#4f5154", "#727475"}, {"#114f96", "#51aaea"}, {"#6387da", "#aec4f3"}, {"#032f5e", "#4570c3"},
}

// baselines is the first colour of upstream's variants.
const baselines = 6

// Style distinguishes a series by colour, form of the marks and line. No distinction
// depends on colour alone.
type Style struct {
	Colour int  // index of the colour
	Form   int  // form of the marks
	Dashed bool // dashed lines and hollow marks, for baselines
}

func (s Style) class() string {
	c := fmt.Sprintf("s%d", s.Colour%len(colours))
	if s.Dashed {
		c += " base"
	}
	return c
}

// styles has the style of each registered variant. Variants of one family differ.
var styles = map[string]Style{
	"cond": ours(0, 0), "channel": ours(1, 1), "ring": ours(2, 2), "sharded": ours(3, 3), "priority": ours(4, 4),
	"snapshot": ours(0, 1),
	"shared":   ours(0, 3), "shared-readonly": ours(2, 0), "metadata": ours(3, 1),
	"clientgo": upstream(0, 0), "clientgo-fifo": upstream(0, 0), "clientgo-informer": upstream(0, 0),
	"clientgo-deltafifo": upstream(1, 1), "clientgo-realfifo": upstream(2, 2), "clientgo-realfifo-batch": upstream(3, 3),
	"reference": upstream(0, 0), "kubelet": upstream(1, 1),
	"clientgo-json": upstream(0, 0), "clientgo-json-transform": upstream(1, 1), "clientgo-protobuf": upstream(2, 2),
	"clientgo-protobuf-transform": upstream(3, 3), "clientgo-cbor": upstream(0, 4), "clientgo-cbor-transform": upstream(1, 0),
}

func ours(colour, form int) Style { return Style{colour, form, false} }

func upstream(colour, form int) Style { return Style{baselines + colour, form, true} }

// Of returns the style of a variant, a function of its name alone: the same in all runs and pages. A
// variant of another module has one of the colours that no registered queue or merger has.
func Of(name string) Style {
	s, ok := styles[name]
	if !ok {
		h := fnv.New32a()
		_, _ = h.Write([]byte(name)) // never fails
		n := int(h.Sum32() >> 1)
		s = ours(baselines-1-n%2, n/2%forms)
	}
	return s
}

// Nth returns the style of the i-th series of a chart whose series are not variants.
func Nth(i int) Style { return Style{Colour: i % len(colours), Form: i % forms} }

// Hex returns the colours of a variant.
func Hex(name string) Colour { return colours[Of(name).Colour] }

//go:embed chart.css
var css string

// CSS returns the colours of both themes and the styles of pictures.
func CSS() string {
	var vars, classes strings.Builder
	for i, c := range colours {
		fmt.Fprintf(&vars, "--s%d:light-dark(%s,%s);", i, c.Light, c.Dark)
		fmt.Fprintf(&classes, ".s%[1]d{--c:var(--s%[1]d)}", i)
	}
	return ":root{" + vars.String() + "}\n" + classes.String() + "\n" + css
}
