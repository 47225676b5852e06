package consensus

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fxamacker/cbor/v2"
	"github.com/roster-mesh/roster/consensus/message"
	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/directory"
)

// aLine returns a line and its other end.
func aLine(t *testing.T) (*writeStream, net.Conn) {
	here, there := net.Pipe()
	l := newWriteStream(here, Member{}, 5*time.Second)

	var run sync.WaitGroup
	run.Go(l.run)
	t.Cleanup(func() {
		l.cut()
		run.Wait()
		_ = there.Close()
	})

	return l, there
}

// asked puts a question and returns where its answer comes.
func asked(ctx context.Context, l *writeStream, text string) chan error {
	got := make(chan error, 1)
	go func() {
		b, err := l.ask(ctx, append(newFrame(len(text)), text...))
		if err == nil && string(b) != "answer to "+text {
			err = fmt.Errorf("%q was answered %q", text, b)
		}

		got <- err
	}()

	return got
}

func TestALineAnswersInWhateverOrder(t *testing.T) {
	l, there := aLine(t)
	all := []chan error{asked(t.Context(), l, "one"), asked(t.Context(), l, "two"), asked(t.Context(), l, "three")}
	r := bufio.NewReader(there)

	questions := map[uint32][]byte{}
	for range all {
		number, body, err := readFrame(r)
		if err != nil {
			t.Fatal(err)
		}

		questions[number] = append(append(newFrame(0), "answer to "...), body...)
	}

	for _, number := range []uint32{3, 1, 2} {
		if err := writeFrame(there, number, questions[number]); err != nil {
			t.Fatal(err)
		}
	}

	for _, got := range all {
		if err := <-got; err != nil {
			t.Error(err)
		}
	}
}

// What a line's other end says it has not read was not done; of the rest nobody
// knows, where no answer came.
func TestALineThatEnds(t *testing.T) {
	l, there := aLine(t)
	first := asked(t.Context(), l, "one")

	r := bufio.NewReader(there)
	if _, _, err := readFrame(r); err != nil {
		t.Fatal(err)
	}

	second := asked(t.Context(), l, "two")
	if _, _, err := readFrame(r); err != nil {
		t.Fatal(err)
	}

	if err := writeFrame(there, goodbye, binary.BigEndian.AppendUint32(newFrame(4), 1)); err != nil {
		t.Fatal(err)
	}

	problem(t, <-first, directory.OutcomeUnknown)

	if err := <-second; !errors.Is(err, message.ErrNotLeader) {
		t.Errorf("what was not read: %v", err)
	}

	if err := <-asked(t.Context(), l, "three"); !errors.Is(err, message.ErrNotLeader) || l.live() {
		t.Errorf("over a line that has ended: %v", err)
	}
}

// Who hears nothing until it gives up lets go of the line: the other end may be gone.
func TestALineThatIsSilent(t *testing.T) {
	l, there := aLine(t)
	ctx, cancel := context.WithCancel(t.Context())
	got := asked(ctx, l, "one")

	if _, _, err := readFrame(bufio.NewReader(there)); err != nil {
		t.Fatal(err)
	}

	cancel()
	problem(t, <-got, directory.OutcomeUnknown)

	if l.live() {
		t.Error("the line is asked over still")
	}
}

func TestAFrameIsBounded(t *testing.T) {
	l, there := aLine(t)

	got := asked(t.Context(), l, "one")
	if _, _, err := readFrame(bufio.NewReader(there)); err != nil {
		t.Fatal(err)
	}

	head := newFrame(0)
	binary.BigEndian.PutUint32(head, 1)
	binary.BigEndian.PutUint32(head[4:], message.MaxBody+1)

	if _, err := there.Write(head); err != nil {
		t.Fatal(err)
	}

	problem(t, <-got, directory.OutcomeUnknown)
}

// A line that a member has opened is of no use to it once it is none.
func TestWhoHasLeftWritesNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDomain(t, 3, func(c *Config) { c.Timing.Sweep = time.Hour }) // which would end the connection
		d.ready()
		leader, other := d.leader()

		out, err := d.nodes[other].Register(t.Context(), put(t, ada, "agent", 600))
		if err != nil {
			t.Fatal(err)
		}

		if err := d.nodes[leader].Expel(t.Context(), d.members[other].ID); err != nil {
			t.Fatal(err)
		}

		raw, err := state.Marshal(&message.Request{Remove: &message.Remove{Caller: message.Caller{Identity: ada},
			RID: out.RID, IfMatch: nil}})
		if err != nil {
			t.Fatal(err)
		}

		l, err := d.nodes[other].forwarder.streamTo(t.Context(), d.members[leader])
		if err != nil {
			t.Fatal(err)
		}

		got, err := d.nodes[other].forwarder.exchange(t.Context(), l, &message.Writes{Requests: []cbor.RawMessage{raw}})
		if err == nil {
			t.Errorf("it is answered %+v", got)
		}

		if _, ok := d.nodes[leader].cfg.Index.Get(out.RID); !ok {
			t.Error("it has removed a registration")
		}
	})
}

// A line that comes while a member stops is told at once that nothing over it was read.
func TestALineThatComesTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDomain(t, 3, nil)
		d.ready()
		leader, other := d.leader()
		d.nodes[leader].writes.served.drain(t.Context())

		l, err := d.nodes[other].forwarder.streamTo(t.Context(), d.members[leader])
		if err != nil {
			t.Fatal(err)
		}

		_, err = d.nodes[other].forwarder.exchange(t.Context(), l, &message.Writes{})
		if !errors.Is(err, message.ErrNotLeader) {
			t.Errorf("it is answered %v", err)
		}
	})
}

// A member that has moved is asked over a line to its new address, and the one to the
// old is cut: it would else last as long as a certificate.
func TestALineToWhereAMemberWasIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDomain(t, 3, nil)
		d.ready()
		leader, other := d.leader() // which opens no lines of its own accord
		here, to := d.nodes[leader], d.members[other]

		old, err := here.forwarder.streamTo(t.Context(), to)
		if err != nil {
			t.Fatal(err)
		}

		if again, err := here.forwarder.streamTo(t.Context(), to); err != nil || again != old {
			t.Fatalf("another line to the same: %v", err)
		}

		old.to.Address = "elsewhere.alpha.test:7000"
		if l, err := here.forwarder.streamTo(t.Context(), to); err != nil || l == old || !l.live() {
			t.Errorf("to where it is now: %v", err)
		}

		if old.live() {
			t.Error("the line to where it was is open")
		}
	})
}
