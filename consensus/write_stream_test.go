package consensus

import (
	"errors"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"
	"github.com/roster-mesh/roster/consensus/message"
	"github.com/roster-mesh/roster/consensus/state"
)

// A line that a member has opened is of no use to it once it is none.
func TestWhoHasLeftWritesNoMore(t *testing.T) {
	late := func(c *Config) { c.Timing.Sweep = time.Hour } // which would end the connection
	inDomain(t, 3, late, func(t *testing.T, d *domain) {
		leader, other := d.leader()

		out := d.register(other, "agent", 600)

		must(t, d.nodes[leader].Expel(t.Context(), d.members[other].ID))

		raw, err := state.Marshal(&message.Request{Remove: &message.Remove{Caller: message.Caller{Identity: ada},
			RID: out.RID, IfMatch: nil}})
		must(t, err)

		l, err := d.nodes[other].forwarder.streamTo(t.Context(), d.members[leader])
		must(t, err)

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
	inDomain(t, 3, nil, func(t *testing.T, d *domain) {
		leader, other := d.leader()
		d.nodes[leader].writes.streams.Drain(t.Context())

		l, err := d.nodes[other].forwarder.streamTo(t.Context(), d.members[leader])
		must(t, err)

		_, err = d.nodes[other].forwarder.exchange(t.Context(), l, &message.Writes{})
		if !errors.Is(err, message.ErrNotLeader) {
			t.Errorf("it is answered %v", err)
		}
	})
}

// A member that has moved is asked over a line to its new address, and the one to the
// old is cut: it would else last as long as a certificate.
func TestALineToWhereAMemberWasIsCut(t *testing.T) {
	inDomain(t, 3, nil, func(t *testing.T, d *domain) {
		leader, other := d.leader() // which opens no lines of its own accord
		here, to := d.nodes[leader], d.members[other]

		old, err := here.forwarder.streamTo(t.Context(), to)
		must(t, err)

		if again, err := here.forwarder.streamTo(t.Context(), to); err != nil || again != old {
			t.Fatalf("another line to the same: %v", err)
		}

		old.to.Address = "elsewhere.alpha.test:7000"
		if l, err := here.forwarder.streamTo(t.Context(), to); err != nil || l == old || !l.IsLive() {
			t.Errorf("to where it is now: %v", err)
		}

		if old.IsLive() {
			t.Error("the line to where it was is open")
		}
	})
}
