package transport

import (
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// Who does not read the answers of a pipeline any more can still send, and close
// it: Raft does so when a member refuses. What is sent goes past the leader's disk, and a member has what it
// accepted alone.
func TestAPipelineWithoutAReaderDoesNotGetStuck(t *testing.T) {
	there, here := tcpTransport(t), tcpTransport(t)
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		for {
			select {
			case rpc := <-there.Consumer():
				accepted := rpc.Command.(*raft.AppendEntriesRequest).PrevLogEntry >= 5
				rpc.Respond(&raft.AppendEntriesResponse{Success: accepted}, nil)
			case <-stop:
				return
			}
		}
	}()

	matched, withheld := make(chan uint64, 10), 0
	member := RaftTransport{
		NetworkTransport: here,
		options: RaftOptions{Address: here.LocalAddr(),
			Matched: func(_ raft.ServerID, _, index uint64) { matched <- index },
			Withhold: func(w *raft.AppendEntriesRequest) *raft.AppendEntriesRequest {
				withheld++
				return w
			}},
	}

	p, err := member.AppendEntriesPipeline("there", there.LocalAddr())
	must(t, err)

	done := make(chan error, 1)
	go func() {
		for i := range uint64(10) {
			if _, err := p.AppendEntries(&raft.AppendEntriesRequest{Term: 1, PrevLogEntry: i},
				&raft.AppendEntriesResponse{}); err != nil {
				done <- err
				return
			}
		}

		for want := uint64(5); want < 10; want++ {
			if index := <-matched; index != want {
				t.Errorf("the member has entry %d, want %d", index, want)
			}
		}

		done <- p.Close()
	}()

	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("stuck")
	}

	if withheld != 10 {
		t.Errorf("%d of 10 messages went past the disk", withheld)
	}
}

// A message that is refused is read with its snapshot, whose rest would be taken for the next message, and shows that
// its member is there.
func TestARefusedMessageIsReadAndCounted(t *testing.T) {
	var heard raft.ServerID

	snapshot, answer := strings.NewReader("snapshot"), make(chan raft.RPCResponse, 1)
	member := RaftTransport{options: RaftOptions{Received: func(from raft.ServerID) { heard = from }}}

	id := spiffeid.RequireFromString("spiffe://alpha.test/roster/node/1")
	if member.admit(id, raft.RPC{Reader: snapshot, RespChan: answer}) || (<-answer).Error == nil {
		t.Error("a node that has not entered its domain takes a message")
	}

	if snapshot.Len() != 0 || heard != raft.ServerID(id.String()) {
		t.Errorf("%d bytes are left, and the member that is there is %q", snapshot.Len(), heard)
	}
}
