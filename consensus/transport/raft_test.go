package transport

import (
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// Who does not read the answers of a pipeline any more can still send, and close
// it: Raft does so when a member refuses.
func TestAPipelineWithoutAReaderDoesNotGetStuck(t *testing.T) {
	there, here := tcpTransport(t), tcpTransport(t)
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		for {
			select {
			case rpc := <-there.Consumer():
				rpc.Respond(&raft.AppendEntriesResponse{}, nil) // a refusal
			case <-stop:
				return
			}
		}
	}()

	member := RaftTransport{
		NetworkTransport: here,
		options: RaftOptions{Address: here.LocalAddr(), Matched: func(raft.ServerID, uint64, uint64) {},
			Withhold: func(w *raft.AppendEntriesRequest) *raft.AppendEntriesRequest { return w }},
	}

	p, err := member.AppendEntriesPipeline("there", there.LocalAddr())
	must(t, err)

	done := make(chan error, 1)
	go func() {
		for range 10 {
			if _, err := p.AppendEntries(&raft.AppendEntriesRequest{Term: 1},
				&raft.AppendEntriesResponse{}); err != nil {
				done <- err
				return
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
}
