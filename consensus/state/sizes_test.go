package state

import (
	"runtime"
	"slices"
	"testing"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/directory/signed"
)

// sizeBytes is the part of the memory of a registration that the state and its index may
// use. The index of ranked search may use 500 bytes (discovery, TestSizesMemory). The heap
// grows by 90 % before a collection (node/memory), so that both together stay within 4 KiB.
const sizeBytes = 1600

// Memory per registration stays within its part of the bar, for documents of 1.4 KB.
//
// Requirement: OPS-019
func TestSizesMemory(t *testing.T) {
	few, _ := populated(t, 1000)
	before := heapInUse()
	runtime.KeepAlive(few)

	const many = 10_000
	d, _ := populated(t, many)

	each := (int64(heapInUse()) - int64(before)) / many
	t.Logf("%d bytes for each of %d registrations", each, many)

	if each > sizeBytes {
		t.Errorf("a registration takes %d bytes of memory; at most %d", each, sizeBytes)
	}

	runtime.KeepAlive(d)
}

// Registrations that expire in the same second end in steps of bounded size, so that no
// step delays other work for long, however many there are.
//
// Requirement: OPS-019
func TestSizesExpiry(t *testing.T) {
	const many = 3000
	d, _ := populated(t, many)
	end := genesis/1000 + 86400

	ended := 0
	for looks := 0; ended < many; looks++ {
		expired, _ := d.state.registrations.Due(end)
		if len(expired) > LooksAtOnce {
			t.Fatalf("one look returned %d expired registrations; at most %d", len(expired), LooksAtOnce)
		}

		if len(expired) == 0 || looks > 2*many/LooksAtOnce {
			t.Fatalf("%d of %d registrations ended after %d looks", ended, many, looks)
		}

		for part := range slices.Chunk(expired, MaxSwept) {
			ended += len(part)
			directorytest.Must(t, d.expire(86400, part))
		}
	}

	if n := d.state.registrations.Len(); n != 0 {
		t.Errorf("%d registrations are left", n)
	}
}

// expire applies the end of registrations, some seconds after genesis.
func (d *drive) expire(seconds int64, rids []directory.RID) error {
	d.t.Helper()

	return d.at(seconds, Command{Expire: &Sweep{signed.StatementFormat, rids}}).Err
}

// heapInUse returns the bytes of the live heap.
func heapInUse() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)

	return m.HeapAlloc
}
