package stream

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roster-mesh/roster/consensus/message"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/directorytest"
)

// aStream returns a stream and its other end.
func aStream(t *testing.T) (*Stream, net.Conn) {
	here, there := net.Pipe()
	stream := New(here, 5*time.Second)

	var run sync.WaitGroup
	run.Go(stream.Run)
	t.Cleanup(func() {
		stream.Cut()
		run.Wait()
		_ = there.Close()
	})

	return stream, there
}

// isUnknown requires an unknown outcome.
func isUnknown(t *testing.T, err error) {
	t.Helper()

	if err == nil || directory.ProblemOf(err) != directory.OutcomeUnknown {
		t.Errorf("got %v, want an unknown outcome", err)
	}
}

// asked puts a question and returns where its answer comes.
func asked(ctx context.Context, stream *Stream, text string) chan error {
	got := make(chan error, 1)
	go func() {
		b, err := stream.Ask(ctx, append(NewFrame(len(text)), text...))
		if err == nil && string(b) != "answer to "+text {
			err = fmt.Errorf("%q was answered %q", text, b)
		}

		got <- err
	}()

	return got
}

func TestAStreamAnswersInWhateverOrder(t *testing.T) {
	stream, there := aStream(t)
	all := []chan error{
		asked(t.Context(), stream, "one"), asked(t.Context(), stream, "two"), asked(t.Context(), stream, "three"),
	}
	r := bufio.NewReader(there)

	questions := map[uint32][]byte{}
	for range all {
		number, body, err := readFrame(r)
		if err != nil {
			t.Fatal(err)
		}

		questions[number] = append(append(NewFrame(0), "answer to "...), body...)
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

// What the other end of a stream says it has not read was not done; of the rest nobody
// knows, where no answer came.
func TestAStreamThatEnds(t *testing.T) {
	stream, there := aStream(t)
	first := asked(t.Context(), stream, "one")

	r := bufio.NewReader(there)
	if _, _, err := readFrame(r); err != nil {
		t.Fatal(err)
	}

	second := asked(t.Context(), stream, "two")
	if _, _, err := readFrame(r); err != nil {
		t.Fatal(err)
	}

	if err := writeFrame(there, goodbye, binary.BigEndian.AppendUint32(NewFrame(4), 1)); err != nil {
		t.Fatal(err)
	}

	isUnknown(t, <-first)

	if err := <-second; !errors.Is(err, message.ErrNotLeader) {
		t.Errorf("what was not read: %v", err)
	}

	if err := <-asked(t.Context(), stream, "three"); !errors.Is(err, message.ErrNotLeader) || stream.IsLive() {
		t.Errorf("over a stream that has ended: %v", err)
	}
}

// Who hears nothing until it gives up lets go of the stream: the other end may be gone.
func TestAStreamThatIsSilent(t *testing.T) {
	stream, there := aStream(t)
	ctx, cancel := context.WithCancel(t.Context())
	got := asked(ctx, stream, "one")

	if _, _, err := readFrame(bufio.NewReader(there)); err != nil {
		t.Fatal(err)
	}

	cancel()
	isUnknown(t, <-got)

	if stream.IsLive() {
		t.Error("the stream is asked over still")
	}
}

func TestAFrameIsBounded(t *testing.T) {
	stream, there := aStream(t)

	got := asked(t.Context(), stream, "one")
	if _, _, err := readFrame(bufio.NewReader(there)); err != nil {
		t.Fatal(err)
	}

	head := NewFrame(0)
	binary.BigEndian.PutUint32(head, 1)
	binary.BigEndian.PutUint32(head[4:], message.MaxBody+1)

	if _, err := there.Write(head); err != nil {
		t.Fatal(err)
	}

	isUnknown(t, <-got)
}

// A question that is given up leaves nothing behind, and its stream goes on if another was answered meanwhile. An
// answer that comes again stops no other.
func TestAStreamGoesOnWithoutAQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		stream, r := New(here, time.Second), bufio.NewReader(there)
		go stream.Run()

		answer := func(number uint32, text string, times int) {
			t.Helper()

			if n, _, err := readFrame(r); n != number || err != nil {
				t.Fatalf("question %d: %v", n, err)
			}

			for range times {
				directorytest.Must(t, writeFrame(there, number, append(NewFrame(0), "answer to "+text...)))
			}
		}

		ctx, cancel := context.WithCancel(t.Context())
		first := asked(ctx, stream, "one")
		answer(1, "", 0)
		time.Sleep(time.Second)

		second := asked(t.Context(), stream, "two")
		answer(2, "two", 3)
		directorytest.Must(t, <-second)
		cancel()
		isUnknown(t, <-first)

		third := asked(t.Context(), stream, "three")
		answer(3, "three", 1)
		directorytest.Must(t, <-third)

		if !stream.IsLive() || len(stream.waiting) != 0 {
			t.Errorf("live: %t, and %d questions wait", stream.IsLive(), len(stream.waiting))
		}

		stream.Cut()
	})
}

// Behind half a frame no other is sent, which the other end would take for its rest. The stream ends unless the answers
// come within the bound.
func TestAStreamThatIsStuckSendsNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		stream := New(here, time.Second)
		go stream.Run()

		first := asked(t.Context(), stream, "one")
		if _, err := io.ReadFull(there, make([]byte, frameHead/2)); err != nil {
			t.Fatal(err)
		}

		time.Sleep(time.Second)
		synctest.Wait()

		second := asked(t.Context(), stream, "two")
		more, err := io.ReadAll(there)

		if len(more) != 0 || err != nil {
			t.Errorf("%q follows half a frame: %v", more, err)
		}

		isUnknown(t, <-first)
		isUnknown(t, <-second)
	})
}
