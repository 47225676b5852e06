package doctor

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxMetrics bounds the bytes of a scrape that are read.
const maxMetrics = 16 << 20

// health checks the metrics of a running node: whether the disk of the federation store
// answers, and whether it contained panics.
func (d *diagnosis) health(ctx context.Context) {
	if !d.runs {
		return
	}

	values, err := d.scrape(ctx)
	if err != nil {
		d.say("federation.store", StatusUnknown, "ask again", "the node's metrics can't be read: %v", err)
		return
	}

	stalled := time.Duration(values["roster_federation_store_stalled_seconds"] * float64(time.Second))
	if stalled > 0 {
		d.say("federation.store", StatusWarning,
			"check the disk under "+d.cfg.Data+"/federation; missed records are pulled once it answers",
			"its disk has not answered for %s: reads continue, no new records are taken from peers",
			stalled.Round(time.Second))
	} else {
		d.say("federation.store", StatusOK, "", "its disk answers")
	}

	d.clock(values)

	var contained float64
	for name, value := range values {
		if strings.HasPrefix(name, "roster_panics_contained_total{") {
			contained += value
		}
	}

	if contained > 0 {
		d.say("panics", StatusWarning, "report it with the stack trace in the node's log",
			"%.0f panics on foreign bytes were contained since this node started; what caused them is left out",
			contained)
	}
}

// clock checks whether the domain's time is this machine's.
func (d *diagnosis) clock(values map[string]float64) {
	const (
		check = "clock"
		do    = "compare this machine's clock with a time server's, and set the clocks of all members right"
	)

	status, step, behind := JudgeClock(values["roster_clock_step_seconds"], values["roster_clock_behind_seconds"])

	if step != 0 {
		d.say(check, status, fmt.Sprintf("%s; then a step is confirmed by a peer's time, when all members have "+
			"agreed on it for ten minutes, or at once by roster raft confirm-clock --step %v", do, step),
			"an unconfirmed step of %v; leases ignore it", step)
	}

	if behind != 0 {
		d.say(check, status, do, "it is %v behind the domain's committed time", behind)
	}

	if status == StatusOK {
		d.say(check, status, "", "the domain's time is this machine's")
	}
}

// scrape returns the series of the node's metrics, by name and labels.
func (d *diagnosis) scrape(ctx context.Context) (map[string]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, askBound)
	defer cancel()

	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+d.cfg.Listen.Admin+"/metrics", nil)
	if err != nil {
		return nil, err
	}

	resp, err := d.admin.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()

	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("it answers %s", resp.Status)
	}

	values := map[string]float64{}

	lines := bufio.NewScanner(io.LimitReader(resp.Body, maxMetrics))
	for lines.Scan() {
		// Comments, and series with a blank in a label, don't parse and are skipped: no check reads them.
		name, text, ok := strings.Cut(lines.Text(), " ")
		if value, err := strconv.ParseFloat(text, 64); ok && err == nil {
			values[name] = value
		}
	}

	return values, lines.Err()
}
