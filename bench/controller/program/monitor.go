package program

import (
	"context"
	"time"

	"watchlab/bench/controller/record"
)

// Monitor observes one replica.
type Monitor struct {
	Client  string    // name of the replica
	Program *Program  // nil if it runs elsewhere
	Scraper *Scraper  // nil without metrics
	Start   time.Time // that the times count from
	// Sampled and Scraped take the observations, in order, from one goroutine. Nil discards them.
	Sampled func(record.Sample)
	Scraped func(record.Scrape)
}

// MonitorInterval is the time between two observations.
const MonitorInterval = time.Second

// Run observes now and then in each interval, until ctx or the program ends. A scrape that fails is left
// out: a program serves its metrics some time after its start. The error is that of the last scrape.
func (m *Monitor) Run(ctx context.Context) error {
	ticker := time.NewTicker(MonitorInterval)
	defer ticker.Stop()
	var exited <-chan struct{}
	if m.Program != nil {
		exited = m.Program.Exited()
	}
	var failed error
	for {
		if err := m.observe(ctx); ctx.Err() == nil {
			failed = err
		}
		select {
		case <-ctx.Done():
			return failed
		case <-exited:
			return failed
		case <-ticker.C:
		}
	}
}

func (m *Monitor) observe(ctx context.Context) error {
	at := time.Since(m.Start)
	var sample record.Sample
	sampled := false
	if m.Program != nil {
		sample, sampled = m.Program.Sample()
	}
	var err error
	if m.Scraper != nil {
		scrape := record.Scrape{At: at, Client: m.Client}
		if scrape.Values, err = m.Scraper.Scrape(ctx); err == nil {
			sample.Goroutines = int(scrape.Values["go_goroutines"])
			if m.Scraped != nil {
				m.Scraped(scrape)
			}
		}
	}
	if sampled && m.Sampled != nil {
		sample.At, sample.Client = at, m.Client
		m.Sampled(sample)
	}
	return err
}
