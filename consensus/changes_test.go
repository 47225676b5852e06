package consensus

import (
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/roster-mesh/roster/consensus/message"
	"github.com/roster-mesh/roster/directory"
)

var commissioner = valueOf(directory.ParseIdentity("spiffe://alpha.test/tool/commissioner"))

// forward gives the leader a request as a member sends it.
func (d *domain) forward(leader, from int, request *message.Request) (message.Reply, error) {
	d.t.Helper()

	raw := valueOf(d.nodes[leader].messenger.encode(request))
	body := valueOf(d.nodes[leader].messenger.encode(&message.Writes{Requests: []cbor.RawMessage{raw}}))

	answers := d.nodes[leader].writes.serve(d.t.Context(), d.members[from].ID, body)
	if answers.NotLeader || len(answers.Replies) != 1 {
		return message.Reply{}, message.ErrNotLeader
	}

	return answers.Replies[0], nil
}

// A change says on every member which one brought it, and a member knows those in its name that its process
// has not sent.
//
// Requirement: SEC-012
func TestAChangeNamesTheMemberThatBroughtIt(t *testing.T) {
	inDomain(t, 3, quiet, func(t *testing.T, d *domain) {
		d.settled()
		time.Sleep(time.Minute) // the processes before these have sent all that they will

		leader, other := d.leader()
		for _, n := range d.nodes {
			n.Changes.Take()
		}

		// By the member itself, and by a thief of its key.
		honest := d.register(other, "honest", 600)

		who := message.Caller{Identity: ada}

		stolen, err := d.forward(leader, other, &message.Request{Mark: make([]byte, markNumber+markSum),
			Register: &message.Register{Caller: who, Agent: "stolen", Kind: directory.KindAD,
				Document: []byte(`{"base":"https://a.test/"}`), Lifetime: 600}})
		if err != nil || stolen.Problem != "" {
			t.Fatal(stolen, err)
		}

		d.settled()

		for i, n := range d.nodes {
			changes, missed := n.Changes.Take()
			if missed != 0 {
				t.Errorf("node %d has missed %d", i, missed)
			}

			found := map[string]Change{}
			for _, change := range changes {
				found[change.Agent] = change
			}

			last, ok := found["stolen"]
			if !ok || last.From != d.members[other].ID || last.Caller != ada || last.Action != "register" ||
				last.RID != stolen.RID || last.Position.Revision != stolen.Revision || last.Unsent != (i == other) {
				t.Errorf("node %d has %+v", i, changes)
			}

			if own, ok := found["honest"]; ok == (i == other) || ok && (own.RID != honest.RID || own.Unsent) {
				t.Errorf("node %d has %+v", i, changes)
			}
		}
	})
}

// The leader decides by its own policy what the caller may, whatever the member says that brings the change.
//
// Requirement: SEC-012
func TestTheLeaderDecidesWhatAForwardedCallerMay(t *testing.T) {
	inDomain(t, 3, func(c *Config) {
		c.Commission = func(caller directory.Identity) bool { return caller == commissioner }
		c.Permit = func(p Proposal) error {
			if p.Owner != ada || p.Agent == "" || p.Projection == nil {
				return directory.Refuse(directory.Forbidden, "%s may not", p.Owner)
			}

			return nil
		}
	}, func(t *testing.T, d *domain) {
		d.settled()

		leader, other := d.leader()

		made := d.register(other, "hers", 600)

		lies := message.Caller{Identity: bob, Commissioning: true}
		for name, c := range map[string]struct {
			request *message.Request
			want    directory.Problem
		}{
			"a removal of another's": {&message.Request{Remove: &message.Remove{Caller: lies, RID: made.RID}},
				directory.Forbidden},
			"a refresh of another's": {&message.Request{Refresh: &message.Refresh{Caller: lies, RID: made.RID,
				Lifetime: 60}}, directory.Forbidden},
			"a registration that policy forbids": {&message.Request{Register: &message.Register{Caller: lies,
				Agent: "his", Kind: directory.KindAD, Document: []byte(`{"base":"https://a.test/"}`)}},
				directory.Forbidden},
		} {
			if reply, err := d.forward(leader, other, c.request); err != nil || reply.Problem != c.want {
				t.Errorf("%s: %+v %v, want %q", name, reply, err, c.want)
			}
		}

		// A tool needs no word of the member's.
		reply, err := d.forward(leader, other, &message.Request{Remove: &message.Remove{
			Caller: message.Caller{Identity: commissioner}, RID: made.RID}})
		if err != nil || reply.Problem != "" {
			t.Errorf("a removal by a tool: %+v %v", reply, err)
		}
	})
}

// A mark holds for its caller alone, and an earlier process's changes are not judged.
func TestMarks(t *testing.T) {
	m := newMarker(time.Second)
	mark, after := m.mark(ada), m.since.Add(time.Millisecond)

	for name, c := range map[string]struct {
		mark   []byte
		caller directory.Identity
		at     time.Time
		want   bool
	}{
		"its own":            {mark, ada, after, true},
		"of another caller":  {mark, bob, after, false},
		"none":               {nil, ada, after, false},
		"another process's":  {newMarker(time.Second).mark(ada), ada, after, false},
		"before it started":  {nil, ada, m.since.Add(-time.Millisecond), true},
		"a part of its mark": {mark[:markNumber], ada, after, false},
	} {
		if got := m.sent(c.mark, c.caller, c.at); got != c.want {
			t.Errorf("a mark %s: %v", name, got)
		}
	}
}

// A feed that nobody reads counts what it has no room for.
func TestAChangeFeedIsBounded(t *testing.T) {
	f := newChangeFeed()
	f.add(make([]Change, maxChanges-1))
	f.add(make([]Change, 3))
	<-f.News()

	if changes, missed := f.Take(); len(changes) != maxChanges || missed != 2 {
		t.Errorf("%d changes, %d missed", len(changes), missed)
	}

	if changes, missed := f.Take(); len(changes) != 0 || missed != 0 {
		t.Errorf("%d changes, %d missed after they were taken", len(changes), missed)
	}
}
