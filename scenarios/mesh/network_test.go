package mesh

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/nettest"

	"github.com/roster-mesh/roster/directory/directorytest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pair returns the two ends of a connection from a to b.
func pair(t testing.TB, n *Network) (dialled, accepted net.Conn) {
	t.Helper()

	l, err := n.Listen("b:0")
	must(t, err)
	defer l.Close()

	if dialled, err = n.Dial(t.Context(), "a", l.Addr().String()); err != nil {
		t.Fatal(err)
	}

	if accepted, err = l.Accept(); err != nil {
		t.Fatal(err)
	}

	return dialled, accepted
}

// It is a net.Conn as the standard library's own.
func TestConn(t *testing.T) {
	nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) {
		n := New(1)
		n.SetAll(Link{Delay: 50 * time.Microsecond, Jitter: 50 * time.Microsecond})
		a, b := pair(t, n)

		return a, b, func() { a.Close(); b.Close() }, nil
	})
}

func write(t *testing.T, c net.Conn, s string) {
	t.Helper()

	if _, err := io.WriteString(c, s); err != nil {
		t.Fatalf("writing %q: %v", s, err)
	}
}

func read(t *testing.T, c net.Conn, want string) {
	t.Helper()

	b := make([]byte, len(want))
	if _, err := io.ReadFull(c, b); err != nil || string(b) != want {
		t.Fatalf("read %q, %v; want %q", b, err, want)
	}
}

// took runs f and checks how much virtual time it takes.
func took(t *testing.T, want time.Duration, f func()) {
	t.Helper()
	start := time.Now()
	f()

	if d := time.Since(start); d != want {
		t.Errorf("took %v, want %v", d, want)
	}
}

func TestDelayAndOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New(1)
		n.SetLink("a", "b", Link{Delay: 30 * time.Millisecond})
		n.SetLink("b", "a", Link{Delay: 10 * time.Millisecond})

		var a, b net.Conn
		took(t, 40*time.Millisecond, func() { a, b = pair(t, n) })
		defer a.Close()
		defer b.Close()
		long := strings.Repeat("x", 100)
		write(t, a, long)
		write(t, a, "second")
		took(t, 30*time.Millisecond, func() {
			read(t, b, long)
			read(t, b, "second")
		})
		write(t, b, "back")
		took(t, 10*time.Millisecond, func() { read(t, a, "back") })
	})
}

func TestLossIsDelayAndSeeded(t *testing.T) {
	run := func(seed uint64) (times []time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			n := New(seed)
			a, b := pair(t, n)
			defer a.Close()
			defer b.Close()
			n.SetAll(Link{Loss: 0.3})

			for range 100 {
				start := time.Now()
				write(t, a, "x")
				read(t, b, "x")
				times = append(times, time.Since(start))
			}
		})

		return times
	}
	first := run(7)
	again := run(7)
	other := run(8)

	same, late := true, 0
	for i := range first {
		if first[i] != again[i] {
			t.Fatalf("segment %d took %v and, with the same seed, %v", i, first[i], again[i])
		}

		same = same && first[i] == other[i]
		if first[i] > 0 {
			late++
		}
	}

	if same || late < 15 || late > 50 {
		t.Errorf("%d of 100 segments late at 30 %% loss; another seed gave the same: %v", late, same)
	}
}

func TestCutHoldsBytesAndHealDeliversThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New(1)
		n.SetAll(Link{Delay: time.Second})
		a, b := pair(t, n)
		defer a.Close()
		defer b.Close()
		write(t, a, "arrives ")
		time.Sleep(time.Second)
		write(t, a, "waits")
		n.CutOneWay("a", "b")
		write(t, b, "passes")
		read(t, b, "arrives ")
		read(t, a, "passes")
		b.SetReadDeadline(time.Now().Add(time.Minute))
		took(t, time.Minute, func() {
			if _, err := b.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("read across a cut: %v", err)
			}
		})
		b.SetReadDeadline(time.Time{})
		n.Heal("a", "b")
		took(t, time.Second, func() { read(t, b, "waits") })
	})
}

func TestLongCutEndsConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New(1)
		a, b := pair(t, n)
		defer a.Close()
		defer b.Close()
		n.Cut("a", "b")
		took(t, GiveUp, func() {
			if _, err := b.Read(make([]byte, 1)); !errors.Is(err, syscall.ETIMEDOUT) {
				t.Errorf("read across a long cut: %v", err)
			}
		})
		n.Heal("a", "b")

		if _, err := a.Write([]byte("x")); !errors.Is(err, syscall.ETIMEDOUT) {
			t.Errorf("write after a long cut: %v", err)
		}
	})
}

func TestDialAcrossACut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New(1)

		l, err := n.Listen("b:1")
		must(t, err)
		defer l.Close()
		n.CutOneWay("b", "a")
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		took(t, 5*time.Second, func() {
			if _, err := n.Dial(ctx, "a", "b:1"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("dial across a cut: %v", err)
			}
		})
		took(t, 127*time.Second, func() {
			if _, err := n.Dial(t.Context(), "a", "b:1"); !errors.Is(err, syscall.ETIMEDOUT) {
				t.Errorf("dial without bound across a cut: %v", err)
			}
		})
		time.AfterFunc(10*time.Second, func() { n.Heal("a", "b") })
		took(t, 15*time.Second, func() { // SYNs at 0, 1, 3, 7, 15 s
			c, err := n.Dial(t.Context(), "a", "b:1")
			must(t, err)

			c.Close()
		})
	})
}

func TestCloseAndReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New(1)
		a, b := pair(t, n)
		write(t, b, "answer")
		b.Close()

		if got, err := io.ReadAll(a); string(got) != "answer" || err != nil {
			t.Fatalf("%q, %v", got, err)
		}

		a.Close()

		if len(n.wires) != 0 {
			t.Errorf("%d connections are still known after both ends closed", len(n.wires))
		}

		a, b = pair(t, n)
		defer a.Close()
		defer b.Close()
		n.SetAll(Link{Reset: 1})

		for _, c := range []net.Conn{a, b} {
			if _, err := c.Write([]byte("x")); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("write on a link that resets: %v", err)
			}
		}
	})
}

func TestKillAndRevive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New(1)

		l, err := n.Listen("b:1")
		must(t, err)

		if _, err := n.Listen("b:1"); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("second listener: %v", err)
		}

		a, b := pair(t, n)

		waiting, err := n.Dial(t.Context(), "a", "b:1") // never accepted
		must(t, err)

		write(t, b, "last words")
		n.Kill("b")
		read(t, a, "last words")

		for _, c := range []net.Conn{a, waiting} {
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("read from a killed host: %v", err)
			}

			c.Close()
		}

		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("accept on a killed host: %v", err)
		}

		if _, err := b.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("write on a killed host: %v", err)
		}

		if _, err := n.Dial(t.Context(), "a", "b:1"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dial to a killed host: %v", err)
		}

		if _, err := n.Listen("b:1"); !errors.Is(err, syscall.ENETDOWN) {
			t.Errorf("listen on a killed host: %v", err)
		}

		n.Revive("b")

		if l, err = n.Listen("b:1"); err != nil {
			t.Fatal(err)
		}

		l.Close()

		if len(n.wires) != 0 || len(n.listeners) != 0 {
			t.Errorf("%d connections and %d listeners are left", len(n.wires), len(n.listeners))
		}
	})
}

var must = directorytest.Must
