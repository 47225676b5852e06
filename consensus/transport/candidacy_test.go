package transport

import (
	"io"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// Of two members that stand for election at the same time, the one with the older log
// withdraws, and of equal logs the one with the greater ID.
func TestOneOfTwoCandidatesWithdraws(t *testing.T) {
	standing := func(id string, term, logTerm, logIndex uint64) *raft.RequestPreVoteRequest {
		return &raft.RequestPreVoteRequest{
			RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(id), Addr: []byte(id)},
			Term:      term, LastLogTerm: logTerm, LastLogIndex: logIndex,
		}
	}
	here, there, third := tcpTransport(t), tcpTransport(t), tcpTransport(t)

	entered, stop := make(chan struct{}), make(chan struct{})
	close(entered)
	t.Cleanup(func() { close(stop) })

	member := RaftTransport{
		NetworkTransport: here, heard: make(chan raft.RPC), candidacy: &candidacy{},
		options: RaftOptions{Address: here.LocalAddr(), Entered: entered, Received: func(raft.ServerID) {},
			Judge: func(spiffeid.ID, any) error { return nil }},
	}
	go member.receive(&lane{network: here, ended: make(chan struct{})}, stop)

	for _, c := range []struct {
		name  string
		other *raft.RequestPreVoteRequest
		wins  bool
	}{
		{"no other stands", nil, true},
		{"the same log, a smaller ID", standing("a", 8, 7, 100), false},
		{"the same log, a greater ID", standing("c", 8, 7, 100), true},
		{"a longer log", standing("c", 8, 7, 101), false},
		{"a shorter log", standing("a", 8, 7, 99), true},
		{"a log of a later term", standing("c", 8, 8, 1), false},
		{"a log of an earlier term", standing("a", 8, 6, 200), true},
		{"an earlier term", standing("a", 7, 7, 100), true},
		{"a later term", standing("a", 9, 7, 100), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got raft.RequestPreVoteResponse

			asked := make(chan error, 1)
			go func() {
				asked <- member.RequestPreVote("there", there.LocalAddr(), standing("b", 8, 7, 100), &got)
			}()

			question := receive(t, there.Consumer())

			if c.other != nil {
				answered := make(chan error, 1)
				go func() {
					answered <- third.RequestPreVote("b", here.LocalAddr(), c.other, &raft.RequestPreVoteResponse{})
				}()

				rpc := receive(t, member.Consumer())
				rpc.Respond(&raft.RequestPreVoteResponse{Granted: true}, nil)

				must(t, receive(t, answered))
			}

			question.Respond(&raft.RequestPreVoteResponse{Granted: true}, nil)

			must(t, receive(t, asked))

			if got.Granted != c.wins {
				t.Errorf("the pre-vote counts: %v, want %v", got.Granted, c.wins)
			}
		})
	}
}

// tcpTransport returns Raft's own transport on a free port of the loopback.
func tcpTransport(t *testing.T) *raft.NetworkTransport {
	t.Helper()

	transport, err := raft.NewTCPTransport("127.0.0.1:0", nil, 1, 10*time.Second, io.Discard)
	must(t, err)

	t.Cleanup(func() { _ = transport.Close() })

	return transport
}

// receive returns the next value of a channel, and fails the test after ten seconds.
func receive[T any](t *testing.T, from <-chan T) (value T) {
	t.Helper()

	select {
	case value = <-from:
	case <-time.After(10 * time.Second):
		t.Fatal("stuck")
	}

	return value
}
