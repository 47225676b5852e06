package stream

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/roster-mesh/roster/consensus/message"
	"github.com/roster-mesh/roster/directory"
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
