package federation

import (
	"context"
	"runtime"
	"time"

	"github.com/roster-mesh/roster/federation/replica"
)

// Where a node's memory ends, the records of the largest peers leave its index, before any request is
// refused for want of memory (rule S17). The shares are of the memory limit; requests are refused
// from .85 on (api/admission).
const (
	shedFrom    = .80 // from here on, an origin is not shown any more
	showBelow   = .70 // an origin is shown again if the use stays below with it
	memoryEvery = 100 * time.Millisecond
	showEvery   = 10 * time.Second // between two origins that are shown again
)

// Memory that the records of an origin need in the index, for each record and for each byte of them
// on disk, where they are compressed.
const (
	memoryPerRecord = 2048
	memoryPerByte   = 2
)

// shortPause is the time between two pages of a pull while the node is short of memory.
const shortPause = time.Second

// isShort reports whether the node is short of memory.
func (c *Config) isShort() bool { return c.MemoryInUse() >= shedFrom }

// memory keeps the node's memory in use below its limit, until ctx ends.
func (m *Mesh) memory(ctx context.Context) {
	var shown time.Time

	for wait(ctx, nil, m.cfg.Stretch.of(memoryEvery)) {
		switch used := m.cfg.MemoryInUse(); {
		case used >= shedFrom:
			m.shedLargest(used)
		case time.Since(shown) >= showEvery && m.showSmallest(used):
			shown = time.Now()
		}
	}
}

// shedLargest takes the records of the largest origin that is shown out of the index. It collects
// the garbage, so that the next look sees the freed memory.
func (m *Mesh) shedLargest(used float64) {
	var (
		largest *replica.Origin
		most    float64
	)

	for _, origin := range m.origins.All() {
		if need := m.memoryNeed(origin); need > most && origin.Shown.Index.Len() > 0 {
			largest, most = origin, need
		}
	}

	if largest == nil || !largest.SetShed(true) {
		return
	}

	records := largest.Status().Records
	m.cfg.Logger.Warn("short of memory: a peer's registrations are not shown until there is room",
		"origin", largest.Domain.Name(), "records", records, "in_use_percent", int(100*used))
	runtime.GC()
}

// showSmallest shows the smallest origin again that was shed, if there is room for it. It reports
// whether there was one.
func (m *Mesh) showSmallest(used float64) bool {
	var smallest *replica.Origin

	least := showBelow - used
	for _, origin := range m.origins.All() {
		if need := m.memoryNeed(origin); origin.IsShed() && need < least {
			smallest, least = origin, need
		}
	}

	if smallest == nil || !smallest.SetShed(false) {
		return false
	}

	m.cfg.Logger.Info("a peer's registrations are shown again", "origin", smallest.Domain.Name())

	return true
}

// Shed returns the domains whose registrations are not shown, because the node is short of memory. It takes no lock.
func (m *Mesh) Shed() (domains []string) {
	for _, origin := range m.origins.All() {
		if origin.IsShed() {
			domains = append(domains, origin.Domain.Name())
		}
	}

	return domains
}

// memoryNeed estimates the share of the memory limit that an origin's records take in the index.
func (m *Mesh) memoryNeed(origin *replica.Origin) float64 {
	if m.cfg.MemoryLimit <= 0 {
		return 0
	}

	status := origin.Status()

	return (memoryPerRecord*float64(status.Records) + memoryPerByte*float64(status.Bytes)) / float64(m.cfg.MemoryLimit)
}
