package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"text/tabwriter"
	"time"
)

// A row is one line of the table: a figure, its yardstick, and the bar.
type row struct {
	Section   string    `json:"section"`
	What      string    `json:"what"`
	Value     float64   `json:"value"`
	Unit      string    `json:"unit"`
	Yardstick string    `json:"yardstick,omitempty"`
	Against   float64   `json:"against,omitempty"` // the yardstick's own figure
	Ratio     float64   `json:"ratio,omitempty"`   // median of the rounds'
	Rounds    []float64 `json:"rounds,omitempty"`  // ratio of each round
	// microseconds of the servers for one operation, ours and the yardstick's
	CPU  [2]float64 `json:"cpu_us"`
	Bar  *bar       `json:"bar,omitempty"`
	Met  *bool      `json:"met,omitempty"`
	Note string     `json:"note,omitempty"`
}

// A bar is a target: for the ratio if there is one, else for the value.
type bar struct {
	AtLeast float64 `json:"at_least,omitempty"`
	AtMost  float64 `json:"at_most,omitempty"`
}

func atLeast(v float64) *bar { return &bar{AtLeast: v} }
func atMost(v float64) *bar  { return &bar{AtMost: v} }

func (b *bar) met(v float64) bool {
	if b.AtLeast > 0 {
		return v >= b.AtLeast
	}

	return v <= b.AtMost
}

func (b *bar) String() string {
	switch {
	case b == nil:
		return ""
	case b.AtLeast > 0:
		return fmt.Sprintf("≥ %g", b.AtLeast)
	}

	return fmt.Sprintf("≤ %g", b.AtMost)
}

// A report has all rows of a run, and the machine that it ran on.
type report struct {
	Began    time.Time         `json:"began"`
	CPUs     int               `json:"cpus"`
	Go       string            `json:"go"`
	Rows     []row             `json:"rows"`
	Failures map[string]string `json:"failures,omitempty"` // section to why
}

func newReport() report {
	return report{Began: time.Now(), CPUs: runtime.NumCPU(), Go: runtime.Version(), Failures: map[string]string{}}
}

func (r *report) fail(section string, err error) { r.Failures[section] = err.Error() }

// add adds a row and says whether its bar is met.
func (r *report) add(w row) {
	if w.Bar != nil {
		v := w.Value
		if w.Yardstick != "" {
			v = w.Ratio
		}

		met := w.Bar.met(v)
		w.Met = &met
	}

	r.Rows = append(r.Rows, w)
}

func (r *report) print(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "SECTION\tWHAT\tFIGURE\tYARDSTICK\tITS FIGURE\tRATIO\tBAR\t\tNOTE")

	for _, row := range r.Rows {
		against := ""
		ratio := ""
		verdict := ""

		if row.Yardstick != "" {
			against, ratio = figure(row.Against)+" "+row.Unit, fmt.Sprintf("%.2f", row.Ratio)
		}

		if row.Met != nil {
			verdict = map[bool]string{true: "met", false: "MISSED"}[*row.Met]
		}

		fmt.Fprintf(t, "%s\t%s\t%s %s\t%s\t%s\t%s\t%s\t%s\t%s\n",
			row.Section, row.What, figure(row.Value), row.Unit, row.Yardstick, against, ratio, row.Bar, verdict,
			row.Note)
	}

	_ = t.Flush()

	for section, why := range r.Failures {
		fmt.Fprintf(w, "%s could not be measured: %s\n", section, why)
	}

	fmt.Fprintf(w, "%d CPUs, shared with whatever else ran; %s; %s\n", r.CPUs, r.Go, r.Began.UTC().Format(time.RFC3339))
}

// figure writes a number with about three digits that say something.
func figure(v float64) string {
	switch {
	case v >= 100 || v == float64(int64(v)):
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}

	return fmt.Sprintf("%.3g", v)
}

func (r *report) write(file string) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}

	return os.WriteFile(file, append(data, '\n'), 0o644)
}
