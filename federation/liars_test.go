package federation

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/evidence"
	"github.com/roster-mesh/roster/federation/gossip"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/store"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// onDiskOf counts the streams of an origin that are on a node's disk.
func (s *site) onDiskOf(t *testing.T) (streams, records int) {
	t.Helper()
	all, err := s.store.Streams(alpha)
	must(t, err)

	for _, st := range all {
		must(t, s.store.Read(st.Id, func(tx *store.Tx) error { records += tx.Records.Stats().KeyN; return nil }))
	}

	return len(all), records
}

// An origin that begins epoch after epoch and finishes none fills no disk beside the
// quotas that count what it told, and what it takes back is not left in one of them.
//
// Requirement: MESH-017, MESH-025
func TestEpochsThatAreNotFinishedLeaveNothing(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		b.origin.register("agent", 600)
		b.pull()

		for i := range 4 {
			time.Sleep(10 * time.Second)
			b.origin.restore()
			b.origin.listKeys(nil, b.alpha.keys)

			for j := range 5 {
				b.origin.register(fmt.Sprint("agent-", i, "-", j), 600)
			}

			made, err := b.alpha.publisher.Page(directory.Mesh, 0, 4, false)
			must(t, err)

			if code, err := b.take(alpha, made.Text); err != nil || code != protocol.CodeApplied || made.To == made.At {
				t.Fatal(code, err)
			}
		}

		if streams, records := b.beta.onDiskOf(t); streams != 2 || records != 5 {
			t.Errorf("%d streams with %d records are on disk: of an epoch that is shown and one that is gathered "+
				"it is 2 with 5", streams, records)
		}
	})
}

// A relay may not make another's records larger than they are: they count against
// that other's quota.
//
// Requirement: MESH-006, MESH-017
func TestARelayCannotInflateRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, set := ruled(t)
		set(directory.PeerRules{Bytes: 100 << 10})
		rid := b.origin.register("agent", 600)
		inflate := true
		b.world.tap = func(_ string, r *http.Request, body []byte) []byte {
			if r.URL.Path != protocol.PathRecords || !inflate {
				return body
			}

			var l protocol.RecordLine
			must(t, json.Unmarshal(body, &l))
			header, rest, _ := strings.Cut(l.Record, ".")
			plain, err := directory.B64.DecodeString(header)
			must(t, err)
			plain = append(bytes.TrimSuffix(plain, []byte("}")), bytes.Repeat([]byte(" "), 60<<10)...)
			l.Record = directory.B64.EncodeToString(append(plain, '}')) + "." + rest

			return l.Append(nil)
		}
		b.pull()

		if s := b.beta.Peers()[0]; s.Bytes > 10<<10 || s.Received[protocol.CodeRecord] != 1 {
			t.Errorf("%d bytes are held of one agent, and %d records were refused", s.Bytes,
				s.Received[protocol.CodeRecord])
		}

		inflate = false
		b.beta.follower.backlog(t.Context(), b.beta.origins.Get(alpha))

		if b.beta.shown(alpha)[rid] == nil {
			t.Error("the record is not taken from who gives it as it is")
		}
	})
}

// Whoever keeps telling what makes a node ask for an origin's keys doesn't keep it
// from asking for the origin's word, without which it hides what the origin told.
//
// Requirement: MESH-008, MESH-017
func TestALiarCannotSilenceAnotherOrigin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, set := ruled(t)
		set(directory.PeerRules{OnStale: directory.OnStaleHide})
		rid := b.origin.register("agent", 3600)
		defer b.beta.run(t)()
		eventually(t, 10*time.Second, "it is shown", func() bool { return b.beta.shown(alpha)[rid] != nil })

		lie, _ := newKeyring(alpha, "liar", b.origin).Sign(signed.TypePage, b.page(nil))
		for i := range 4 * 240 {
			time.Sleep(250 * time.Millisecond)
			b.beta.pushed(gamma, protocol.GossipPage, lie)

			if s := b.beta.Peers()[0]; i%40 == 0 && (s.State != "active" || s.Hidden ||
				b.beta.shown(alpha)[rid] == nil) {
				t.Fatalf("after a head of %v: %+v", s.HeadAge, s)
			}
		}

		if s := b.beta.Peers()[0]; s.HeadAge > 2*time.Minute {
			t.Errorf("the last head is of %v ago", s.HeadAge)
		}
	})
}

// A peer that echoes what it pulled doesn't keep the domain from telling the mesh.
//
// Requirement: MESH-006, MESH-017
func TestAnEchoIsNoVoiceOfTheOwnDomain(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		told := &teller{}
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		go b.alpha.gossip.gossipOut(ctx, told)

		for i := range 3 {
			time.Sleep(2 * time.Second)
			rid := b.origin.register(fmt.Sprint("agent-", i), 600)
			b.origin.grant(rid, directory.Only(beta), true)

			for _, aud := range []directory.Audience{directory.Mesh, directory.Only(beta)} {
				made, err := b.alpha.publisher.Page(aud, 0, protocol.MaxDigests, true)
				must(t, err)
				b.alpha.pushed(beta, protocol.GossipPage, made.Text)
			}
		}

		time.Sleep(2 * time.Second)

		if n := told.count(protocol.GossipPage); n != 3 {
			t.Errorf("%d of 3 pages were told the mesh", n)
		}
	})
}

// A teller is a pool that notes what it is to tell.
type teller struct {
	mu       sync.Mutex
	messages []string
}

func (p *teller) Publish(_ string, msg []byte, _ gossip.Audience) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.messages = append(p.messages, string(msg))
}

// count returns how many messages of a sort there are.
func (p *teller) count(sort byte) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()

	for _, msg := range p.messages {
		if msg[0] == sort {
			n++
		}
	}

	return n
}

func (p *teller) Members() []gossip.MemberStatus { return nil }
func (p *teller) Close() error                   { return nil }

// What an origin says in a new epoch is passed on though it has fewer revisions.
//
// Requirement: MESH-006, MESH-019
func TestANewEpochIsPassedOn(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		told := &teller{}
		b.beta.gossip.setGossip(told)
		hear := func() {
			t.Helper()
			page, err := b.alpha.publisher.Page(directory.Mesh, 0, protocol.MaxDigests, false)
			must(t, err)
			b.beta.pushed(alpha, protocol.GossipPage, page.Text)
			o := b.beta.origins.Get(alpha)
			b.beta.follower.open(t.Context(), o, <-o.Mailbox.Queue)
		}

		b.origin.registers(5, 600)

		must(t, b.beta.receiver.refreshKeys(t.Context(), b.beta.origins.Get(alpha), b.giver()))

		hear()
		time.Sleep(10 * time.Second)
		b.origin.restore()
		b.origin.rev, b.origin.tip = 1, 1
		b.origin.history = map[directory.RID][]signed.Digest{}
		b.origin.listKeys(nil, b.alpha.keys)
		must(t, b.beta.receiver.refreshKeys(t.Context(), b.beta.origins.Get(alpha), b.giver()))
		b.origin.register("again", 600)
		hear()

		if n := told.count(protocol.GossipPage); n != 2 {
			t.Errorf("%d of 2 pages were passed on", n)
		}
	})
}

// An origin that lets this domain have its private stream alone is known to be there
// by its own word; what others repeat of it doesn't count.
//
// Requirement: MESH-008
func TestARepeatedWordIsNoSignOfLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := active(alpha, 1)
		p.Import.OnStale = directory.OnStaleHide
		b := newPeering(t, &p)
		rid := b.origin.register("agent", 3600)
		b.origin.grant(rid, directory.Only(beta), true)
		b.origin.export(rid, false)
		head, err := b.alpha.publisher.Head()
		must(t, err)
		b.origin.mesh = nil
		b.origin.listKeys(nil, b.alpha.keys)
		defer b.beta.run(t)()
		eventually(t, 10*time.Second, "it is shown", func() bool { return b.beta.shown(alpha)[rid] != nil })
		time.Sleep(5 * time.Minute)

		if b.beta.shown(alpha)[rid] == nil {
			t.Fatal("hidden while its origin answers")
		}

		b.world.cutOff(func(string, string) bool { return true })

		for range 5 * 60 {
			time.Sleep(time.Second)
			b.beta.pushed(gamma, protocol.GossipHead, head)
		}

		if s := b.beta.Peers()[0]; !s.Hidden || b.beta.shown(alpha)[rid] != nil ||
			time.Since(s.LastHeard) < 4*time.Minute {
			t.Errorf("five minutes after its last word: %+v", s)
		}
	})
}

// A believer is a Court that believes all evidence, and has it that domains act at once.
type believer struct{ frozen func(spiffeid.TrustDomain) }

func (c *believer) Accuse(spiffeid.TrustDomain, []string, []string) ([]byte, error) {
	return nil, errNoCase
}
func (c *believer) Judge(file []byte, _ bool) (evidence.Conviction, error) {
	return evidence.Conviction{Origin: alpha, ID: string(file)}, nil
}
func (c *believer) Freeze(_ context.Context, td spiffeid.TrustDomain) error {
	c.frozen(td)
	return nil
}

// A peer that fills the evidence that is kept against them can be convicted after a release
// still, also where the node stops before the domain has acted.
//
// Requirement: MESH-022
func TestMuchEvidenceMakesNobodyImmune(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		p := active(alpha, 1)
		set := func(state directory.PeeringState) {
			mu.Lock()
			defer mu.Unlock()
			p.State = state
		}
		b := newBench(t, func(c *Config) {
			c.Verifier = &believer{func(spiffeid.TrustDomain) { set(directory.PeeringFrozen) }}
			c.Peerings = func() []directory.Peering {
				mu.Lock()
				defer mu.Unlock()

				return []directory.Peering{p}
			}
		})
		acts := func() {
			ctx, stop := context.WithCancel(t.Context())
			go b.beta.evidence.enforce(ctx)
			synctest.Wait()
			stop()
			synctest.Wait()
			b.beta.reconcile()
		}

		for i := range 2 * evidence.MaxFiles {
			_, _ = b.beta.evidence.convict(fmt.Append(nil, "E1-", i), true)
		}

		acts()

		if _, err := b.beta.evidence.convict([]byte("E1-more"), true); !errors.Is(err, evidence.ErrManyKept) {
			t.Errorf("of an origin that the domain has frozen: %v", err)
		}

		if _, err := b.beta.evidence.file(alpha, "E1-0"); err != nil {
			t.Errorf("what convicted first gave way to what nobody needs: %v", err)
		}

		for i := range 3 {
			set(directory.PeeringActive)
			b.beta.reconcile()

			if !b.beta.origins.Get(alpha).Accepts() {
				t.Fatal("not released")
			}

			fresh, err := b.beta.evidence.convict(fmt.Append(nil, "E1-later-", i), true)
			if b.beta.reopen(t); !fresh || err != nil || b.beta.origins.Get(alpha).Accepts() {
				t.Errorf("after release %d: fresh %v, %v", i, fresh, err)
			}

			acts()

			if n := len(b.beta.evidence.cases.Files(alpha)); n > evidence.MaxFiles {
				t.Errorf("%d files are kept", n)
			}

			if _, err := b.beta.evidence.file(alpha, fmt.Sprint("E1-later-", i)); err != nil {
				t.Error(err)
			}
		}

		files, err := os.ReadDir(filepath.Join(b.beta.cfg.Dir, "evidence"))
		if err != nil || len(files) != evidence.MaxFiles {
			t.Errorf("%d files are on disk, %v", len(files), err)
		}
	})
}

// Records that can't be shown are no flood of lines.
//
// Requirement: MESH-017
func TestRefusedRecordsAreNoFloodOfLines(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		o := b.origin
		for i := range 300 {
			rid := o.register(fmt.Sprint("agent-", i), 600)
			o.with(rid, func(r *registration, at int64) {
				r.document = directory.LoadDocument(directory.KindAD, []byte(`{"endpoint":7}`))
				o.put(rid, r, at)
			})
		}

		before := b.log.n.Load()
		b.pull()

		if n := b.log.n.Load() - before; n == 0 || n > 3 {
			t.Errorf("%d lines", n)
		}

		if s := b.beta.Peers()[0]; s.Received[protocol.CodeRecord] != 300 {
			t.Errorf("%d of 300 are counted", s.Received[protocol.CodeRecord])
		}
	})
}

// One who is refused all the time keeps no other's refusal out of the log.
//
// Requirement: MESH-026
func TestNobodysRefusalsHideAnothers(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		forged, _ := newKeyring(alpha, "forger", b.origin).Sign(signed.TypePage, b.page(nil))
		for range 10 {
			_, _ = b.take(gamma, forged)
			time.Sleep(100 * time.Millisecond)
		}

		before := b.log.n.Load()

		_, _ = b.take(gamma, forged)
		for range 10 {
			_, _ = b.take(alpha, forged)
		}

		if n := b.log.n.Load() - before; n != 2 {
			t.Errorf("%d lines of two senders", n)
		}
	})
}

// A record names no time that an answer couldn't.
//
// Requirement: MESH-017
func TestATimeThatHasNoForm(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		odd := b.origin.register("odd", 600)
		good := b.origin.register("good", 600)
		b.origin.with(odd, func(r *registration, at int64) {
			r.since = 1 << 39
			b.origin.put(odd, r, at)
		})
		b.pull()

		for _, e := range b.beta.shown(alpha) {
			text := time.UnixMilli(e.RegisteredAt).UTC().Format(time.RFC3339)
			if _, err := time.Parse(time.RFC3339, text); err != nil {
				t.Errorf("%s was registered at %s", e.Agent, text)
			}
		}

		if b.beta.shown(alpha)[good] == nil {
			t.Error("the others aren't shown")
		}
	})
}
