package measure

import (
	"slices"
	"time"
)

// Figure is a number that was measured once in each run.
type Figure struct {
	Name   string    `json:"name"`
	Unit   string    `json:"unit"`
	Median float64   `json:"median"`
	Min    float64   `json:"min"`
	Max    float64   `json:"max"`
	Values []float64 `json:"values"`
}

// Series is something that was looked at again and again while one run went on.
type Series struct {
	Name string `json:"name"`
	Unit string `json:"unit"`
	// Points are pairs of the seconds since the run began and the value then.
	Points [][2]float64 `json:"points"`
}

// Ceiling is what the same machine and directory give without a queue.
type Ceiling struct {
	Name string `json:"name"`
	// Rate is per second: of syncs, or of messages.
	Rate    float64  `json:"rate"`
	Unit    string   `json:"unit"`
	Latency *Latency `json:"latency,omitempty"`
}

// Ratio is a figure divided by a ceiling.
type Ratio struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
}

// Report is all that one call of a benchmark has to tell.
type Report struct {
	Benchmark string            `json:"benchmark"`
	Time      time.Time         `json:"time"`
	Machine   any               `json:"machine"`
	Options   map[string]string `json:"options"`
	Ceilings  []Ceiling         `json:"ceilings"`
	Figures   []Figure          `json:"figures"`
	Latencies []Latency         `json:"latencies"`
	Ratios    []Ratio           `json:"ratios"`
	// Series are those of the last run.
	Series []Series `json:"series"`
	// Notes are what a reader has to know of this run.
	Notes []string `json:"notes"`
}

// Run collects what one run has measured.
type Run struct {
	values []value
	hists  []named
	Series []Series
}

type value struct {
	name, unit string
	v          float64
}

type named struct {
	name string
	h    *Histogram
}

// Add adds a number.
func (r *Run) Add(name, unit string, v float64) { r.values = append(r.values, value{name, unit, v}) }

// AddLatency adds a histogram, if anything was counted.
func (r *Run) AddLatency(name string, h *Histogram) {
	if h != nil && h.Count() > 0 {
		r.hists = append(r.hists, named{name, h})
	}
}

// Join puts what several runs have measured into a report: the median of each figure with its spread, and the latencies of all
// runs together.
func (rep *Report) Join(runs []*Run) {
	hists := map[string]*Histogram{}
	var names []string
	for _, run := range runs {
		for _, v := range run.values {
			i := slices.IndexFunc(rep.Figures, func(f Figure) bool { return f.Name == v.name })
			if i < 0 {
				i = len(rep.Figures)
				rep.Figures = append(rep.Figures, Figure{Name: v.name, Unit: v.unit})
			}
			rep.Figures[i].Values = append(rep.Figures[i].Values, v.v)
		}
		for _, n := range run.hists {
			if hists[n.name] == nil {
				hists[n.name] = &Histogram{}
				names = append(names, n.name)
			}
			hists[n.name].Merge(n.h)
		}
		rep.Series = run.Series
	}
	for i := range rep.Figures {
		f := &rep.Figures[i]
		f.Median, f.Min, f.Max = Median(f.Values), slices.Min(f.Values), slices.Max(f.Values)
	}
	for _, name := range names {
		rep.Latencies = append(rep.Latencies, hists[name].Latency(name))
	}
}

// Figure returns the median of a figure, and false if the report has none of that name.
func (rep *Report) Figure(name string) (float64, bool) {
	for _, f := range rep.Figures {
		if f.Name == name {
			return f.Median, true
		}
	}
	return 0, false
}

// Latency returns a latency by its name, nil if the report has none.
func (rep *Report) Latency(name string) *Latency {
	for i := range rep.Latencies {
		if rep.Latencies[i].Name == name {
			return &rep.Latencies[i]
		}
	}
	return nil
}

// Ceiling returns a ceiling by its name, nil if the report has none.
func (rep *Report) Ceiling(name string) *Ceiling {
	for i := range rep.Ceilings {
		if rep.Ceilings[i].Name == name {
			return &rep.Ceilings[i]
		}
	}
	return nil
}

// Compare adds the ratio of two numbers, unless there is nothing to divide by.
func (rep *Report) Compare(name string, v, by float64) {
	if v > 0 && by > 0 {
		rep.Ratios = append(rep.Ratios, Ratio{name, v / by})
	}
}

// Median returns the middle of values, of an even number of them the mean of the two in the middle; 0 of none.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(values))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}
