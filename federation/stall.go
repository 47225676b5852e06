package federation

import (
	"fmt"
	"time"

	"github.com/roster-mesh/roster/federation/store"
)

// A disk that does not answer stops the change that it was given, and nothing else.
// Readers see memory. Changes that come later are refused, and their loops ask peers
// for the same again once the disk answers: nothing is queued meanwhile, and nothing
// is lost, because a stream's watermark says how far it is.

// StoreStalled returns for how long the disk of the store has not answered; 0 if it
// does, or has not been waited for as long as store.StallAfter.
func (m *Mesh) StoreStalled() time.Duration { return m.store.Disk.StalledFor() }

func (m *Mesh) stallBegan() {
	m.cfg.Logger.Error("the disk of the federation store does not answer; reads go on, and nothing new is taken from peers",
		"dir", m.cfg.Dir, "after", store.StallAfter.String())
}

// stallEnded wakes all that gave up on the disk.
func (m *Mesh) stallEnded(lasted time.Duration) {
	m.cfg.Logger.Info("the disk of the federation store answers again; what was missed is pulled",
		"dir", m.cfg.Dir, "stalled", lasted.Round(time.Millisecond).String())

	nudge(m.judge)
	nudge(m.halted)
	m.store.Wake()
	for _, o := range m.origins.all() {
		nudge(o.streams.kick)
		nudge(o.ask)
	}
	m.origins.notify()
}

// stalledError says for how long the disk has not answered, for an operator; "" if it
// does.
func (m *Mesh) stalledError() string {
	if d := m.StoreStalled(); d > 0 {
		return fmt.Sprintf("the disk of this node's federation store has not answered for %s", d.Round(time.Second))
	}

	return ""
}
