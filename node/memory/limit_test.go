package memory

import (
	"testing"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

func unlimited() (uint64, error) { return 0, memlimit.ErrNoLimit }

// The bound is a share of the cgroup's limit or of the machine's memory, whichever is lower.
//
// Requirement: FORM-009
func TestTheLimitIsTheLowerOfCgroupAndMachine(t *testing.T) {
	const machine = 16 << 30

	for name, c := range map[string]struct {
		cgroup, machine memlimit.Provider
		want            Bound
	}{
		"a small cgroup":     {memlimit.Limit(1000), memlimit.Limit(machine), Bound{900, "cgroup"}},
		"a large cgroup":     {memlimit.Limit(1 << 40), memlimit.Limit(machine), Bound{12 << 30, "machine"}},
		"a cgroup as large":  {memlimit.Limit(machine), memlimit.Limit(machine), Bound{12 << 30, "machine"}},
		"an endless cgroup":  {unlimited, memlimit.Limit(machine), Bound{12 << 30, "machine"}},
		"an unknown machine": {memlimit.Limit(1000), unlimited, Bound{900, "cgroup"}},
	} {
		if got, err := find(c.cgroup, c.machine); err != nil || got != c.want {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, c.want)
		}
	}

	if got, err := find(unlimited, unlimited); err == nil {
		t.Errorf("without any limit the bound is %+v", got)
	}
}
