package stream

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/consensus/message"
	"github.com/roster-mesh/roster/directory/directorytest"
)

// A served is a server with a stream to it, both within a bubble.
type served struct {
	Server

	gate chan struct{} // each answer waits for it

	mu       sync.Mutex
	member   bool // whether the sender is one
	occupied int  // answers under way
	answered []string
}

func newServed() *served {
	s := &served{gate: make(chan struct{}), member: true}
	s.Parallel, s.WriteTime, s.CloseTime = 2, time.Second, 5*time.Second
	s.Answer = func(_ spiffeid.ID, question []byte) []byte {
		<-s.gate

		s.mu.Lock()
		defer s.mu.Unlock()

		s.answered = append(s.answered, string(question))

		return append(append(NewFrame(0), "answer to "...), question...)
	}
	s.Occupy = func(_ net.Conn, by int) {
		s.mu.Lock()
		defer s.mu.Unlock()

		s.occupied += by
	}
	s.IsMember = func(spiffeid.ID) bool {
		s.mu.Lock()
		defer s.mu.Unlock()

		return s.member
	}

	return s
}

// accept returns the other end of a connection, and the channel that is closed once it is served.
func (s *served) accept() (here net.Conn, done chan struct{}) {
	here, there := net.Pipe()
	done = make(chan struct{})

	go func() {
		defer close(done)

		s.Serve(there)
	}()

	return here, done
}

// open is accept of a stream.
func (s *served) open() (stream *Stream, done chan struct{}) {
	here, done := s.accept()
	stream = New(here, time.Second)

	go stream.Run()

	return stream, done
}

// isIdle requires that a server has answered these questions and has nothing left of any stream.
func (s *served) isIdle(t *testing.T, answered ...string) {
	t.Helper()

	s.mu.Lock()
	defer s.mu.Unlock()

	if len(s.answered) != len(answered) || s.occupied != 0 || len(s.Server.served) != 0 {
		t.Errorf("%q are answered, %d are under way and %d streams served; want %q and nothing else", s.answered,
			s.occupied, len(s.Server.served), answered)
	}
}

func TestAServerAnswersAndCountsItsQuestions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServed()
		stream, done := s.open()
		one, two := asked(t.Context(), stream, "one"), asked(t.Context(), stream, "two")
		synctest.Wait()

		if s.occupied != 2 {
			t.Errorf("%d answers are under way, want 2 at a time", s.occupied)
		}

		close(s.gate)
		directorytest.Must(t, errors.Join(<-one, <-two))

		stream.Cut()
		<-done
		s.isIdle(t, "one", "two")
	})
}

// A server that stops answers what it has read, and says what it has not.
func TestADrainedServerAnswersWhatItHasRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServed()
		stream, done := s.open()
		one := asked(t.Context(), stream, "one")
		synctest.Wait()

		drained := make(chan struct{})
		go func() {
			defer close(drained)

			s.Drain(t.Context())
		}()
		synctest.Wait()

		select {
		case <-drained:
			t.Error("the server does not wait for an answer under way")
		default:
		}

		two := asked(t.Context(), stream, "two")
		synctest.Wait()
		close(s.gate)

		if err := <-two; !errors.Is(err, message.ErrNotLeader) {
			t.Errorf("a question behind the drain: %v", err)
		}

		directorytest.Must(t, <-one)
		<-drained
		<-done

		late, done := s.open()
		if err := <-asked(t.Context(), late, "three"); !errors.Is(err, message.ErrNotLeader) {
			t.Errorf("a question over a later stream: %v", err)
		}

		<-done
		s.isIdle(t, "one")
	})
}

// A drain ends with its time, whatever an answer takes.
func TestADrainIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServed()
		stream, done := s.open()
		one := asked(t.Context(), stream, "one")
		synctest.Wait()

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()

		s.Drain(ctx)
		close(s.gate)
		directorytest.Must(t, <-one)
		<-done
	})
}

// A question of a former member is read, so that it gets the goodbye frame, and not answered, and neither is one
// without a number. The sender has a time to close the connection.
func TestAServerTakesLeaveOfItsSender(t *testing.T) {
	for number, member := range map[uint32]bool{7: false, goodbye: true} {
		synctest.Test(t, func(t *testing.T) {
			s := newServed()
			s.member = member
			close(s.gate)
			here, done := s.accept()
			directorytest.Must(t, writeFrame(here, number, append(NewFrame(0), "one"...)))

			number, body, err := readFrame(bufio.NewReader(here))
			if err != nil || number != goodbye || len(body) != 4 || binary.BigEndian.Uint32(body) != 0 {
				t.Fatalf("it gets frame %d with %x: %v", number, body, err)
			}

			for range 2 {
				if _, err := here.Write([]byte("more")); err != nil {
					t.Errorf("the connection is cut before the other end has closed it: %v", err)
				}
			}

			began := time.Now()
			<-done

			if took := time.Since(began); took != s.CloseTime {
				t.Errorf("the connection was closed after %s, want %s", took, s.CloseTime)
			}

			if _, err := here.Write([]byte("more")); err == nil {
				t.Error("the connection is left open")
			}

			s.isIdle(t)
		})
	}
}

// A question of which a half came is no question.
func TestAQuestionThatIsCutOffIsNotAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServed()
		close(s.gate)
		here, done := s.accept()
		frame := append(NewFrame(0), "one"...)
		binary.BigEndian.PutUint32(frame, 1)
		binary.BigEndian.PutUint32(frame[4:], 6)

		if _, err := here.Write(frame); err != nil {
			t.Fatal(err)
		}

		directorytest.Must(t, here.Close())
		<-done
		s.isIdle(t)
	})
}

// A sender that does not read its answers loses the stream, which holds answers for no longer than the bound.
func TestAnAnswerThatIsNotReadCutsItsStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServed()
		close(s.gate)

		here, done := s.accept()

		began := time.Now()
		directorytest.Must(t, writeFrame(here, 1, append(NewFrame(0), "one"...)))
		<-done

		if took := time.Since(began); took != s.WriteTime {
			t.Errorf("the stream ended after %s, want %s", took, s.WriteTime)
		}

		s.isIdle(t, "one")
	})
}
