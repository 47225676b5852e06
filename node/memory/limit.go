package memory

import (
	"errors"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// A Bound is how much memory the process may have.
type Bound struct {
	Bytes  int64
	Source string // cgroup or machine
}

// The collector gets a share of the memory. Beside the heap and the stacks that it
// counts, there are mapped files and, on a machine, other processes.
const (
	shareOfCgroup  = .9
	shareOfMachine = .75
)

// find returns the bound of the collector: shareOfCgroup of the limit of the process's cgroup,
// and at most shareOfMachine of the machine's memory. It fails if neither is known.
func find(cgroup, machine memlimit.Provider) (Bound, error) {
	inCgroup, err1 := memlimit.ApplyRatio(cgroup, shareOfCgroup)()
	onMachine, err2 := memlimit.ApplyRatio(machine, shareOfMachine)()

	switch {
	case err1 != nil && err2 != nil:
		return Bound{}, errors.Join(err1, err2)

	// A cgroup without a limit may have more than the machine.
	case err1 != nil || err2 == nil && onMachine < inCgroup:
		return Bound{int64(onMachine), "machine"}, nil
	}

	return Bound{int64(inCgroup), "cgroup"}, nil
}
