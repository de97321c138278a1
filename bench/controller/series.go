package controller

import (
	"maps"
	"math"
	"slices"
	"time"

	"watchlab/bench/controller/record"
	"watchlab/bench/controller/rules"
)

// The names of the series of a play.
const (
	SeriesLatency    = "reconcile latency" // ns, a point for each answered event
	SeriesRequests   = "requests"          // requests/s, by verb in place of the client
	SeriesLag        = "watch lag"         // events, the largest of a client's watches
	SeriesRSS        = "RSS"               // bytes
	SeriesCPU        = "CPU"               // share of one core
	SeriesFiles      = "open files"
	SeriesGoroutines = "goroutines"
	SeriesDepth      = "workqueue depth"
)

// maxPoints is the number of points of a series. Of more, the largest of each interval remain: a chart is
// about the peaks.
const maxPoints = 300

// seriesSet has the series in the order of their first points.
type seriesSet []Series

func (s *seriesSet) add(name, unit, client string, at time.Duration, value float64) {
	i := slices.IndexFunc(*s, func(o Series) bool { return o.Name == name && o.Client == client })
	if i < 0 {
		i = len(*s)
		*s = append(*s, Series{Name: name, Unit: unit, Client: client})
	}
	// More digits than a chart shows would take half of result.json.
	points := &(*s)[i].Points
	*points = append(*points, at.Round(time.Millisecond).Seconds(), math.Round(value*1000)/1000)
}

// series computes the series of a play.
func series(p *record.Play, reactions []rules.Reaction) []Series {
	s := &seriesSet{}
	for _, r := range reactions {
		if r.Answer != nil {
			s.add(SeriesLatency, "ns", "", r.Event.Intended, float64(r.Latency))
		}
	}
	s.rates(p)
	s.lags(p.Lags)
	before := map[string]record.Sample{}
	for _, v := range p.Samples {
		s.add(SeriesRSS, "B", v.Client, v.At, float64(v.RSS))
		s.add(SeriesFiles, "files", v.Client, v.At, float64(v.Files))
		if v.Goroutines > 0 {
			s.add(SeriesGoroutines, "goroutines", v.Client, v.At, float64(v.Goroutines))
		}
		if b, ok := before[v.Client]; ok && v.CPU >= b.CPU && v.At > b.At {
			s.add(SeriesCPU, "cores", v.Client, v.At, float64(v.CPU-b.CPU)/float64(v.At-b.At))
		}
		before[v.Client] = v
	}
	for _, sc := range p.Scrapes {
		if depth, ok := sc.Values["workqueue_depth"]; ok {
			s.add(SeriesDepth, "items", sc.Client, sc.At, depth)
		}
	}
	for i := range *s {
		(*s)[i].Points = thin((*s)[i].Points)
	}
	return *s
}

// rates adds the requests of each second of the play, by verb.
func (s *seriesSet) rates(p *record.Play) {
	verbs := map[string][]float64{}
	for a := range record.Each(p.Accesses) {
		if verbs[a.Verb] == nil {
			verbs[a.Verb] = make([]float64, int(p.End/time.Second)+1)
		}
		if at := int(a.At / time.Second); a.At >= 0 && at < len(verbs[a.Verb]) {
			verbs[a.Verb][at]++
		}
	}
	for _, verb := range slices.Sorted(maps.Keys(verbs)) {
		for at, n := range verbs[verb] {
			s.add(SeriesRequests, "requests/s", verb, time.Duration(at)*time.Second, n)
		}
	}
}

// lags adds the largest lag of the watches of each client.
func (s *seriesSet) lags(lags []record.Lag) {
	for i := 0; i < len(lags); {
		at := lags[i].At
		most := map[string]int64{}
		for ; i < len(lags) && lags[i].At == at; i++ {
			most[lags[i].Client] = max(most[lags[i].Client], int64(lags[i].Events))
		}
		for _, c := range slices.Sorted(maps.Keys(most)) {
			s.add(SeriesLag, "events", c, at, float64(most[c]))
		}
	}
}

// thin keeps the largest point of each interval.
func thin(points []float64) []float64 {
	n := len(points) / 2
	if n <= maxPoints {
		return points
	}
	out := make([]float64, 0, 2*maxPoints)
	for k := range maxPoints {
		best := k * n / maxPoints
		for i := best + 1; i < (k+1)*n/maxPoints; i++ {
			if points[2*i+1] > points[2*best+1] {
				best = i
			}
		}
		out = append(out, points[2*best], points[2*best+1])
	}
	return out
}
