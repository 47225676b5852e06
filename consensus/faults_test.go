package consensus

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roster-mesh/roster/consensus/message"
	"github.com/roster-mesh/roster/consensus/state"
	"github.com/roster-mesh/roster/consensus/transport"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

func TestALogEntryOfANewerReleaseIsLatched(t *testing.T) {
	inDomain(t, 1, nil, func(t *testing.T, d *domain) {
		s := d.nodes[0]

		entry := valueOf(state.Marshal(map[int]any{1: state.NewestLogVersion + 1, 2: 0, 3: []any{}}))
		must(t, s.group.raft.Apply(entry, time.Second).Error())

		if s.Ready() == nil {
			t.Error("ready, with an entry that it could not apply")
		}

		_, err := s.Register(t.Context(), put(t, ada, "after", 600))
		problem(t, err, directory.Unavailable)

		if err := s.group.raft.Snapshot().Error(); err == nil {
			t.Error("a snapshot was made of a state that lacks an entry")
		}
	})
}

// stranger returns the end of a node that is not in the domain, which knows these members.
func (d *domain) stranger(id spiffeid.ID, known ...Member) *transport.Cluster {
	d.t.Helper()

	server, client := d.ca.configs(d.t, id)
	address := fmt.Sprint("stranger:", len(d.net.listeners))

	stranger := transport.New(transport.Options{
		Listener: d.net.listen(address), Dial: d.net.dialer(address), ServerTLS: server, ClientTLS: client,
		Log: d.nodes[0].log, Known: func() []Member { return known },
		Claim:  func() transport.Claim { return transport.Claim{} },
		Others: func(spiffeid.ID) []string { return nil },
	})
	d.t.Cleanup(func() { must(d.t, stranger.Close()) })

	return stranger
}

func TestOnlyMembersTalk(t *testing.T) {
	inDomain(t, 1, nil, func(t *testing.T, d *domain) {
		me := d.members[0]
		for _, c := range []struct{ name, id string }{
			{"another node of the domain", "spiffe://alpha.test/roster/node/stranger"},
			{"an agent of the domain", "spiffe://alpha.test/agent/ada"},
		} {
			stranger := d.stranger(spiffeid.RequireFromString(c.id), d.members...)
			for _, proto := range []string{transport.ProtocolRaft, transport.ProtocolHTTP, transport.ProtocolWrite} {
				conn, err := stranger.Connect(t.Context(), me.Address, proto)
				if err != nil {
					continue // refused in the handshake
				}

				_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
				if _, err := conn.Read(make([]byte, 1)); err == nil {
					t.Errorf("%s was answered by %s", c.name, proto)
				}

				_ = conn.Close()
			}

			if resp, err := stranger.Client().
				Post("https://"+me.Address+termPath, message.TypeCBOR, http.NoBody); err == nil {
				_ = resp.Body.Close()
				t.Errorf("%s was answered %s", c.name, resp.Status)
			}
		}

		// A member that answers at another's address is not believed.
		wrong := Member{ID: spiffeid.RequireFromString("spiffe://alpha.test/roster/node/other"), Address: me.Address}

		_, err := d.stranger(me.ID, wrong).Connect(t.Context(), me.Address, transport.ProtocolRaft)
		if !errors.Is(err, transport.ErrNotMember) {
			t.Errorf("a member at the wrong address: %v", err)
		}
	})
}

func TestAMemberAttestsItsOwnKeyOnly(t *testing.T) {
	inDomain(t, 3, nil, func(t *testing.T, d *domain) {
		leader, follower := d.leader()
		key := signed.SigningKey{Public: make([]byte, 32), Node: d.members[leader].ID, Attestations: []string{"a.b.c"}}
		problem(t, d.nodes[follower].Attest(t.Context(), key), directory.Forbidden)

		key.Node = d.members[follower].ID
		must(t, d.nodes[follower].Attest(t.Context(), key))

		if doc := d.nodes[follower].Replica.KeyDocument(); doc == nil || len(doc.Keys) != 1 ||
			doc.Keys[0].Node != key.Node {
			t.Errorf("the key document is %+v", doc)
		}
	})
}

func TestALaggingFollowerGetsASnapshot(t *testing.T) {
	inDomain(t, 3, soonCompacted, func(t *testing.T, d *domain) {
		leader, follower := d.leader()
		d.stop(follower)

		for i := range 40 {
			d.register(leader, fmt.Sprint("agent-", i), 600)
		}

		must(t, d.nodes[leader].group.raft.Snapshot().Error())

		d.start(follower)
		d.ready()

		s := d.nodes[follower]
		if s.group.raft.Stats()["last_snapshot_index"] == "0" {
			t.Error("it got no snapshot")
		}

		if n := s.cfg.Index.Len(); n != 40 {
			t.Errorf("ready with %d of 40", n)
		}

		if size, root := d.nodes[leader].Replica.Ledger(); func() bool {
			n, r := s.Replica.Ledger()
			return n != size || r != root
		}() {
			t.Error("the ledgers differ")
		}

		err := filepath.WalkDir(filepath.Join(d.dir, fmt.Sprint(leader), "snapshots"),
			func(path string, e fs.DirEntry, err error) error {
				if info, _ := e.Info(); err == nil && !e.IsDir() && info.Mode().Perm() != 0o600 {
					t.Errorf("%s has mode %s", path, info.Mode())
				}

				return err
			})
		if err != nil {
			t.Error(err)
		}
	})
}

func TestAnIsolatedLeaderSaysThatItDoesNotKnow(t *testing.T) {
	inDomain(t, 3, nil, func(t *testing.T, d *domain) {
		leader, other := d.leader()
		d.net.isolate(d.members[leader].Address)
		_, err := d.nodes[leader].Register(t.Context(), put(t, ada, "in-between", 600))
		problem(t, err, directory.OutcomeUnknown)
		_, err = d.nodes[leader].Register(t.Context(), put(t, ada, "after", 600))
		problem(t, err, directory.Unavailable)

		if d.nodes[leader].Ready() == nil {
			t.Error("an isolated member is ready")
		}

		d.register(other, "elsewhere", 600)

		d.net.heal(d.members[leader].Address)
		d.ready()
		d.settled()

		if got := d.nodes[leader].cfg.Index.Named("after"); len(got) != 0 {
			t.Error("what was said to be unchanged was changed")
		}
	})
}

func TestAWriteWithoutALeaderEndsInTime(t *testing.T) {
	inDomain(t, 3, nil, func(t *testing.T, d *domain) {
		d.stop(0)
		d.stop(1)
		time.Sleep(2 * time.Second)
		began := time.Now()
		_, err := d.nodes[2].Register(t.Context(), put(t, ada, "nobody", 600))
		problem(t, err, directory.Unavailable)

		if took := time.Since(began); took > 6*time.Second {
			t.Errorf("it took %s", took)
		}

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began = time.Now()
		_, err = d.nodes[2].Register(ctx, put(t, ada, "nobody", 600))
		problem(t, err, directory.Unavailable)

		if took := time.Since(began); took > 1100*time.Millisecond {
			t.Errorf("with a second's patience it took %s", took)
		}

		if d.nodes[2].diskWatch.Heard() < 2*time.Second {
			t.Errorf("the leader was heard %s ago", d.nodes[2].diskWatch.Heard())
		}
	})
}

// Requirement: AD-011, AD-055, AD-056
func TestAPatchIsMergedByTheLeader(t *testing.T) {
	inDomain(t, 3, func(c *Config) { c.MaxLifetime = 1000 }, func(t *testing.T, d *domain) {
		_, follower := d.leader()
		s := d.nodes[follower]

		out, err := s.Register(t.Context(), put(t, ada, "translator", 5000))
		if err != nil || out.Granted != 1000 {
			t.Fatalf("over the maximum: %+v, %v", out, err)
		}

		who := directory.Caller{Identity: ada}

		patched, err := s.Refresh(t.Context(), directory.RefreshRequest{Caller: who, RID: out.RID, Lifetime: 2000,
			Patch: []byte(`{"description":"translates"}`)})
		if err != nil || patched.Granted != 1000 || patched.Position.Revision != out.Position.Revision+1 {
			t.Fatalf("a patch: %+v, %v", patched, err)
		}

		e, _ := s.cfg.Index.Get(out.RID)

		want, _ := put(t, ada, "translator", 0).Document.Merge([]byte(`{"description":"translates"}`))
		if string(e.Document.Bytes()) != string(want.Bytes()) || e.Projection().Description != "translates" {
			t.Errorf("the document is %s", e.Document.Bytes())
		}

		_, err = s.Refresh(t.Context(), directory.RefreshRequest{Caller: who, RID: out.RID,
			Patch: []byte(`{"base":null}`)})
		problem(t, err, directory.BadDocument)

		if now, _ := s.cfg.Index.Get(out.RID); now.Revision != e.Revision {
			t.Error("a bad patch changed something")
		}

		card, err := directory.ParseDocument(directory.KindA2A,
			[]byte(`{"name":"a","description":"a","url":"https://a.test/","version":"1","capabilities":{},`+
				`"skills":[],"defaultInputModes":["text/plain"],"defaultOutputModes":["text/plain"],`+
				`"protocolVersion":"0.3.0"}`))
		must(t, err)

		other, err := s.Register(t.Context(), directory.RegisterRequest{Caller: who, Agent: "card", Document: card,
			Lifetime: 600})
		must(t, err)

		_, err = s.Refresh(t.Context(), directory.RefreshRequest{Caller: who, RID: other.RID,
			Patch: []byte(`{"description":"x"}`)})
		problem(t, err, directory.WrongKind)
	})
}

func TestAPeeringDecidesGrantsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *Store
		d := newDomain(t, 1, func(c *Config) {
			c.Grants = func(Subject) []directory.Grant {
				if s == nil || len(s.Replica.Peerings()) == 0 {
					return nil
				}

				return []directory.Grant{{Audience: directory.Only(beta), All: true},
					{Audience: directory.Mesh, Reg: []string{"agent"}}}
			}
		})
		d.ready()

		out := d.register(0, "translator", 600)

		if ds, _, _ := d.nodes[0].Replica.Digests(directory.Only(beta), 0, 10); len(ds) != 0 {
			t.Fatal("something is granted before there is a peer")
		}

		s = d.nodes[0]
		must(t, s.SetPeering(t.Context(), directory.Peering{Domain: beta, State: directory.PeeringActive,
			Addresses: []string{"https://b"}}))

		eventually(t, "the peer's stream has it", func() bool {
			_, ok := s.Replica.Current(out.RID, directory.Only(beta))
			return ok
		})

		if _, ok := s.Replica.Current(out.RID, directory.Mesh); ok {
			t.Error("a grant that lacks what every grant has was taken")
		}

		problem(t, s.SetPeering(t.Context(), directory.Peering{Domain: alpha, State: directory.PeeringActive}),
			directory.BadRequest)
	})
}
