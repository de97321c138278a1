package stats

import (
	"fmt"
	"io"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Size of a picture.
const (
	pictureWidth  = 24 * vg.Centimeter
	pictureHeight = 18 * vg.Centimeter
)

// Picture draws the events a second and the events of each key, from the busiest
// to the quietest, both with a line for each resource. The format is svg or png.
func (m *Recording) Picture(w io.Writer, format string) error {
	rate, skew := plot.New(), plot.New()
	rate.Title.Text = m.Name
	rate.X.Label.Text, rate.Y.Label.Text = "seconds", "events a second"
	skew.X.Label.Text, skew.Y.Label.Text = "rank of the key", "events of the key"
	for _, p := range []*plot.Plot{rate, skew} {
		p.Legend.Top = true
		p.Add(plotter.NewGrid())
	}
	drawn := 0
	for i, r := range m.Resources {
		if len(r.counts) == 0 {
			continue
		}
		drawn++
		points := make(plotter.XYs, len(r.rate))
		for j, n := range r.rate {
			points[j] = plotter.XY{X: float64(j), Y: float64(n)}
		}
		ranks := make(plotter.XYs, len(r.counts))
		for j, n := range r.counts {
			ranks[j] = plotter.XY{X: float64(j + 1), Y: float64(n)}
		}
		for p, xys := range map[*plot.Plot]plotter.XYs{rate: points, skew: ranks} {
			line, err := plotter.NewLine(xys)
			if err != nil {
				return fmt.Errorf("stats: %w", err)
			}
			line.Color = plotutil.Color(i)
			line.StepStyle = plotter.MidStep
			p.Add(line)
			name := r.Resource
			if p == skew {
				name = fmt.Sprintf("%s, Zipf exponent %.2f", r.Resource, r.Zipf)
			}
			p.Legend.Add(name, line)
		}
	}
	if drawn > 0 {
		// Of one event there would be no logarithm of nothing.
		skew.X.Scale, skew.Y.Scale = plot.LogScale{}, plot.LogScale{}
		skew.X.Tick.Marker, skew.Y.Tick.Marker = plot.LogTicks{Prec: -1}, plot.LogTicks{Prec: -1}
		skew.X.Min, skew.Y.Min = min(skew.X.Min, 1), min(skew.Y.Min, 1)
		skew.X.Max, skew.Y.Max = max(skew.X.Max, 2), max(skew.Y.Max, 2)
	}
	var canvas interface {
		vg.CanvasSizer
		io.WriterTo
	}
	switch format {
	case "svg":
		canvas = vgsvg.New(pictureWidth, pictureHeight)
	case "png":
		canvas = vgimg.PngCanvas{Canvas: vgimg.New(pictureWidth, pictureHeight)}
	default:
		return fmt.Errorf("stats: a picture in %q (allowed: svg, png)", format)
	}
	all := draw.New(canvas)
	half := all.Size().Y / 2
	rate.Draw(draw.Crop(all, 0, -vg.Millimeter*4, half, -vg.Millimeter))
	skew.Draw(draw.Crop(all, 0, -vg.Millimeter*4, 0, -half-vg.Millimeter))
	_, err := canvas.WriteTo(w)
	return err
}
