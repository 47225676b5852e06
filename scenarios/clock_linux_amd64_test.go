package scenarios

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	apiclient "github.com/roster-mesh/roster/api/client"
)

// A steppedClock is the wall clock of a running process, by which it can be set wrong: the function
// that the kernel maps into each process to read clocks (vDSO) is replaced in that process by one
// that adds an offset to CLOCK_REALTIME. The clocks that count time stay right, as they do if a
// machine's wall clock is set.
type steppedClock struct {
	memory *os.File
	offset int64 // where the offset is, in seconds
}

// clockCode reads a clock by the system call, and adds what stands behind it to the seconds of
// CLOCK_REALTIME, which is clock 0.
var clockCode = []byte{
	0xb8, 0xe4, 0x00, 0x00, 0x00, // mov eax, SYS_clock_gettime
	0x0f, 0x05, // syscall
	0x85, 0xff, // test edi, edi
	0x75, 0x0a, // jne ret
	0x48, 0x8b, 0x0d, 0x04, 0x00, 0x00, 0x00, // mov rcx, [rip+4]
	0x48, 0x01, 0x0e, // add [rsi], rcx
	0xc3, // ret
}

// newSteppedClock prepares the clock of a process.
func newSteppedClock(t *testing.T, pid int) *steppedClock {
	t.Helper()

	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	must(t, err)

	var from, to int64
	for line := range strings.Lines(string(maps)) {
		if strings.Contains(line, "[vdso]") {
			if _, err := fmt.Sscanf(line, "%x-%x", &from, &to); err != nil {
				t.Fatal(err)
			}
		}
	}

	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		t.Skipf("another process's memory can't be written here: %v", err)
	}

	t.Cleanup(func() { _ = memory.Close() })

	image := make([]byte, to-from)
	if _, err := memory.ReadAt(image, from); err != nil {
		t.Fatal(err)
	}

	library, err := elf.NewFile(bytes.NewReader(image))
	must(t, err)

	symbols, err := library.DynamicSymbols()
	must(t, err)

	for _, symbol := range symbols {
		if symbol.Name != "__vdso_clock_gettime" {
			continue
		}

		room := int64(len(image) - 64) // behind the library's end
		if len(bytes.Trim(image[room:], "\x00")) > 0 {
			t.Skip("the vDSO has no room")
		}

		clock := &steppedClock{memory, from + room + int64(len(clockCode))}
		jump := binary.LittleEndian.AppendUint32([]byte{0xe9}, uint32(room-int64(symbol.Value)-5))

		must(t, errors.Join(clock.write(clockCode, from+room),
			clock.write(jump, from+int64(symbol.Value))))

		return clock
	}

	t.Skip("the vDSO has no clock")

	return nil
}

func (c *steppedClock) write(data []byte, at int64) error {
	_, err := c.memory.WriteAt(data, at)
	return err
}

// set makes the clock wrong by this much; 0 puts it right.
func (c *steppedClock) set(by time.Duration) error {
	return c.write(binary.LittleEndian.AppendUint64(nil, uint64(int64(by.Seconds()))), c.offset)
}

// All clocks of two domains are an hour ahead for a while, and then right: leases that are asked for
// later are as long as granted, at home and at the peer, which watches, also after every node was
// started again; and a peer's watcher doesn't see anything end.
//
// Requirement: FLD-024
func TestNoStepOfAllClocksExtendsALease(t *testing.T) {
	t.Parallel() // most of its time it waits for processes
	p := startProcesses(t, "--domains", "2", "--nodes", "3", "--sample", "0")

	var clocks []*steppedClock
	for _, d := range p.Domains {
		for _, n := range d.Nodes {
			must(t, syscall.Kill(n.PID, syscall.SIGSTOP))

			clocks = append(clocks, newSteppedClock(t, n.PID))

			must(t, syscall.Kill(n.PID, syscall.SIGCONT))
		}
	}

	set := func(by time.Duration) {
		for _, c := range clocks {
			must(t, c.set(by))
		}
	}

	const lease = 10 * time.Minute

	register := func(name string) error {
		_, err := p.client(0, 0, "agent/ada").Register(t.Context(), name, []byte(`{"base":"https://kept.alpha.test/"}`),
			apiclient.RegisterOptions{Lifetime: lease, Visibility: "mesh"})

		return err
	}
	watch := watchOf(t, p.client(1, 1, "agent/bob"))
	leased := func(name string) {
		t.Helper()
		p.eventually(name+" is registered", func() error { return register(name) })

		for n := range 3 {
			home := p.client(0, n, "agent/ada")
			there := p.client(1, n, "agent/bob")

			for _, at := range []*apiclient.Client{home, there} {
				p.eventually(name+" is seen", func() error {
					listing, err := at.Lookup(t.Context(), apiclient.LookupOptions{Agent: name})
					if err != nil {
						return err
					}

					if len(listing.Agents) != 1 {
						return fmt.Errorf("%d are shown", len(listing.Agents))
					}

					left := time.Until(listing.Agents[0].Provenance.ExpiresAt)
					if left > lease || left < lease/2 {
						t.Errorf("node %d, %v: the lease of %s has %v left", n, at == there, name, left)
					}

					return nil
				})
			}
		}
	}

	leased("before")
	set(time.Hour)
	time.Sleep(3 * time.Second)

	_ = register("while") // certificates may have ended by these clocks

	time.Sleep(3 * time.Second)
	set(0)
	p.eventually("all nodes are ready", func() error {
		var errs []error
		for _, d := range p.Domains {
			for _, n := range d.Nodes {
				errs = append(errs, ready(n))
			}
		}

		return errors.Join(errs...)
	})
	leased("after")

	for _, d := range p.Domains {
		for _, n := range d.Nodes {
			p.kill(n)
			p.restart(n)
		}
	}

	leased("later")

	if ended := watch(); ended != "" {
		t.Errorf("a watcher at the peer saw the end of %s", ended)
	}
}

// watchOf watches a directory, and returns a function that says which agent it has seen the end of.
func watchOf(t *testing.T, at *apiclient.Client) (ended func() string) {
	t.Helper()

	watch, err := at.Watch(t.Context(), apiclient.LookupOptions{}, "")
	must(t, err)

	var (
		mu    sync.Mutex
		first string
	)

	done := make(chan struct{})
	go func() {
		defer close(done)

		for {
			event, err := watch.Next()
			if err != nil {
				return // the node is killed at the end
			}

			if event.Kind == apiclient.EventRemoved {
				mu.Lock()
				first = string(event.Data)
				mu.Unlock()
			}
		}
	}()
	t.Cleanup(func() {
		_ = watch.Close()
		<-done
	})

	return func() string {
		mu.Lock()
		defer mu.Unlock()

		return first
	}
}
