package memory

import (
	"log/slog"
	"math"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// restored puts the collector's settings back when a test ends.
func restored(t *testing.T) {
	percent, limit := debug.SetGCPercent(100), debug.SetMemoryLimit(-1)
	t.Cleanup(func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	})
}

// governSmall governs a process in a cgroup of 4 GiB.
func governSmall() (stop func()) {
	return govern(memlimit.Limit(4<<30), memlimit.Limit(16<<30), slog.New(slog.DiscardHandler))
}

// Requirement: FORM-009
func TestTheLimitIsSetUnlessTheEnvironmentHasOne(t *testing.T) {
	restored(t)
	debug.SetMemoryLimit(math.MaxInt64)
	t.Setenv("GOGC", "100")
	t.Setenv("GOMEMLIMIT", "8GiB")
	governSmall()()

	if got := debug.SetMemoryLimit(-1); got != math.MaxInt64 {
		t.Errorf("with GOMEMLIMIT the limit is %d", got)
	}

	if InUse() != 0 {
		t.Errorf("without a limit %v of it is in use", InUse())
	}

	t.Setenv("GOMEMLIMIT", "")
	governSmall()()

	const want = 4 << 30 * 9 / 10
	if got := debug.SetMemoryLimit(-1); got != want {
		t.Errorf("the limit is %d, want %d", got, want)
	}

	govern(unlimited, unlimited, slog.New(slog.DiscardHandler))()

	if got := debug.SetMemoryLimit(-1); got != want {
		t.Errorf("where nothing is known the limit is %d, want the old one", got)
	}

	if got := read("/gc/gogc:percent")[0]; got != 100 {
		t.Errorf("with GOGC it is %d", got)
	}
}

// Requirement: FORM-009
func TestTheHeapGrowsByAShareOrByAFewMegabytes(t *testing.T) {
	for live, want := range map[uint64][2]int{
		0: {mostPercent / 2, mostPercent}, 1 << 20: {mostPercent / 2, mostPercent}, 16 << 20: {640, 800},
		128 << 20: {90, 100}, 1 << 30: {90, 90}, 64 << 30: {90, 90},
	} {
		if got := percentOf(live); got < want[0] || got > want[1] {
			t.Errorf("with %d MiB live GOGC is %d, want %d to %d", live>>20, got, want[0], want[1])
		}
	}

	restored(t)
	t.Setenv("GOGC", "")
	stop := governSmall()
	defer stop()

	held := make([]byte, 256<<20)
	for deadline := time.Now().Add(10 * time.Second); ; {
		runtime.GC()

		if got := read("/gc/gogc:percent")[0]; got == GrowthPercent {
			break
		}

		if time.Now().After(deadline) {
			t.Fatalf("with %d MiB live GOGC is %d", len(held)>>20, read("/gc/gogc:percent")[0])
		}

		runtime.Gosched()
	}

	runtime.KeepAlive(held)
}

// What is garbage is not in use.
//
// Requirement: FORM-009
func TestWhatIsInUseIsWhatACollectionLeaves(t *testing.T) {
	restored(t)
	debug.SetMemoryLimit(1 << 30)
	debug.SetGCPercent(1000)
	held := make([]byte, 512<<20)
	runtime.GC()

	if got := InUse(); got < .5 || got > .7 {
		t.Errorf("with half of the limit held %.2f is in use", got)
	}

	runtime.KeepAlive(held)
	runtime.GC()
	garbage := make([]byte, 256<<20)
	garbage[0] = 1

	if got := InUse(); got > .3 {
		t.Errorf("with garbage alone %.2f is in use", got)
	}

	runtime.KeepAlive(garbage)
}
