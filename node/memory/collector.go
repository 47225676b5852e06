package memory

import (
	"fmt"
	"log/slog"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// The heap grows by GrowthPercent of the live heap before a collection, or by
// leastGrowth if that is more.
const (
	GrowthPercent = 90
	leastGrowth   = 128 << 20
)

// mostPercent bounds GOGC if hardly anything is live.
const mostPercent = 6400

// Govern sets the collector of a process that serves: a memory limit by the process's cgroup and
// the machine, unless GOMEMLIMIT is set, and the growth of the heap, unless GOGC is set. stop ends
// the pacing, and leaves the limit.
func Govern(log *slog.Logger) (stop func()) {
	return govern(memlimit.FromCgroup, memlimit.FromSystem, log)
}

func govern(cgroup, machine memlimit.Provider, log *slog.Logger) (stop func()) {
	if os.Getenv("GOMEMLIMIT") == "" {
		if bound, err := find(cgroup, machine); err == nil {
			debug.SetMemoryLimit(bound.Bytes)
			log.Info("memory limit set", "bytes", bound.Bytes, "source", bound.Source)
		} else {
			log.Warn("no memory limit: neither a cgroup nor the machine says how much memory there is; set GOMEMLIMIT",
				"err", err)
		}
	}

	if os.Getenv("GOGC") != "" {
		return func() {}
	}

	p := &pacer{}
	p.adjust()

	return func() { p.stopped.Store(true) }
}

// A pacer sets GOGC after each collection, by the size of the live heap.
type pacer struct {
	stopped atomic.Bool
	percent int // 0 before the first collection
}

// A cycle becomes garbage at once, so that its cleanup runs after the next collection.
type cycle struct{ _ [16]byte }

// adjust sets GOGC, and again after each collection.
func (p *pacer) adjust() {
	if p.stopped.Load() {
		return
	}

	live := read(liveBytes)[0]
	if percent := percentOf(live); percent != p.percent {
		p.percent = percent
		debug.SetGCPercent(percent)
	}

	runtime.AddCleanup(new(cycle), func(p *pacer) { p.adjust() }, p)
}

// percentOf returns GOGC for so much that is live. Steps are coarse, since to set it
// stops the world for a moment.
func percentOf(live uint64) int {
	percent := mostPercent
	if live > 0 {
		percent = int(min(mostPercent, 100*leastGrowth/live))
	}

	if percent <= GrowthPercent {
		return GrowthPercent
	}

	step := 1 << (int(math.Log2(float64(percent))) - 2)

	return max(GrowthPercent, percent/step*step)
}

// Names of the runtime's metrics.
const (
	liveBytes    = "/gc/heap/live:bytes"
	limitBytes   = "/gc/gomemlimit:bytes"
	totalBytes   = "/memory/classes/total:bytes"
	objectBytes  = "/memory/classes/heap/objects:bytes"
	freeBytes    = "/memory/classes/heap/free:bytes"
	unusedBytes  = "/memory/classes/heap/unused:bytes"
	releasedSize = "/memory/classes/heap/released:bytes"
)

func read(names ...string) []uint64 {
	samples := make([]metrics.Sample, len(names))
	for i, name := range names {
		samples[i].Name = name
	}

	metrics.Read(samples)

	values := make([]uint64, len(names))
	for i := range samples {
		if samples[i].Value.Kind() != metrics.KindUint64 {
			panic(fmt.Sprintf("this runtime has no metric %s", names[i]))
		}

		values[i] = samples[i].Value.Uint64()
	}

	return values
}

// Limit returns the memory limit of the process, in bytes; 0 for none.
func Limit() int64 {
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
		return limit
	}

	return 0
}

// InUse returns the share of the memory limit that a collection can't free, as of the
// last collection; 0 without a limit.
func InUse() float64 {
	v := read(limitBytes, totalBytes, liveBytes, objectBytes, freeBytes, unusedBytes, releasedSize)

	limit, total, live := v[0], v[1], v[2]
	if limit >= math.MaxInt64 || limit == 0 {
		return 0
	}

	beside := total // memory outside the heap: stacks, and the runtime's own
	for _, heap := range v[3:] {
		beside -= min(beside, heap)
	}

	return float64(live+beside) / float64(limit)
}
