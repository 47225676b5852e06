package federation

import (
	"fmt"
	"testing"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/store"
)

// proven checks a proof as its reader does, offline, but for the attestation.
func proven(t *testing.T, b *bench, rid directory.RID, record, page, keys string) {
	t.Helper()

	parts, err := protocol.SplitJWS(keys)
	must(t, err)

	doc, err := signed.ParseKeyDocument(parts.Payload)
	must(t, err)

	if _, _, err := verifyBy(doc, signed.TypeKeys, keys); err != nil {
		t.Fatalf("keys: %v", err)
	}

	payload, _, err := verifyBy(doc, signed.TypePage, page)
	if err != nil {
		t.Fatalf("page: %v", err)
	}

	p, err := signed.ParsePage(payload)
	must(t, err)

	rec, err := signed.ParseRecord(record)
	must(t, err)

	payload, _, err = verifyBy(doc, signed.TypeRecord, rec.JWS)
	if err != nil {
		t.Fatalf("record: %v", err)
	}

	c, err := signed.OpenRecord(payload, rec.Disclosures)
	if err != nil || c.RID != rid {
		t.Fatalf("record: %+v %v", c, err)
	}

	h := &store.Entry{Revision: b.origin.regs[rid].announced.Revision, H: c.H, M: c.M,
		Deadline: b.origin.regs[rid].announced.Deadline}
	if err := lists(p, rid, h); err != nil || len(page) > smallPage {
		t.Fatalf("page of %d bytes: %v", len(page), err)
	}
}

// Requirement: MESH-001
func TestARegistrationIsProvedAtHomeAndAtAMirror(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		b.origin.registers(40, 600)

		rid := b.origin.register("agent", 600)
		for i := range 40 {
			b.origin.register(fmt.Sprint("more-", i), 600)
		}

		b.pull()

		if link, err := b.beta.holdings.pageOf(beta,
			protocol.PageQuery{Origin: alpha, Aud: directory.Mesh}); err != nil || len(link) < smallPage {
			t.Fatalf("the chain's own page is small: %d, %v", len(link), err)
		}

		for name, s := range map[string]*site{"home": b.alpha, "mirror": b.beta} {
			record, page, keys, err := s.Proof(t.Context(), alpha, rid)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}

			proven(t, b, rid, record, page, keys)
		}

		shown := b.beta.shown(alpha)[rid]
		if payload, err := b.beta.Statement(shown); err != nil || directory.HashOf(payload) != shown.Received.H {
			t.Fatalf("its statement: %s, %v", payload, err)
		}

		b.world.cut = func(string, string) bool { return true }
		if _, page, _, err := b.beta.Proof(t.Context(), alpha, rid); err != nil || len(page) < smallPage {
			t.Fatalf("alone, from the chain: %d bytes, %v", len(page), err)
		}
	})
}

// When the key that signed a record is revoked, a mirror has it signed again.
func TestARecordOfARevokedKeyIsSignedAgain(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		rid := b.origin.register("agent", 600)
		b.pull()

		old, err := b.beta.Record(t.Context(), alpha, rid)
		must(t, err)

		retired := signed.KeyID(b.alpha.keys.public())
		b.alpha.keys.private = newKeyring(alpha, "next", b.origin).private
		b.origin.listKeys([]string{retired}, b.alpha.keys)

		must(t, b.beta.receiver.askHead(t.Context(), b.beta.origins.Get(alpha), b.giver()))

		b.world.cut = func(string, string) bool { return true }
		if _, err := b.beta.Record(t.Context(), alpha, rid); directory.ProblemOf(err) != directory.Unavailable {
			t.Fatalf("handed out by a revoked key, or %v", err)
		}

		if len(b.beta.shown(alpha)) != 1 {
			t.Fatal("the registration itself is gone")
		}

		b.world.cut = nil

		record, page, keys, err := b.beta.Proof(t.Context(), alpha, rid)
		if err != nil || record == old {
			t.Fatal(err)
		}

		proven(t, b, rid, record, page, keys)

		b.world.cut = func(string, string) bool { return true }
		if kept, err := b.beta.Record(t.Context(), alpha, rid); err != nil || kept != record {
			t.Fatalf("not kept: %v", err)
		}
	})
}

// What a node doesn't hold, or what has ended, is proved by nobody.
func TestNothingIsProvedThatIsNotAlive(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		rid := b.origin.register("agent", 600)
		b.pull()
		b.origin.remove(rid)
		b.pull()

		for name, s := range map[string]*site{"home": b.alpha, "mirror": b.beta} {
			for _, id := range []directory.RID{rid, ridOf(alpha, 99)} {
				if _, _, _, err := s.Proof(t.Context(), alpha,
					id); directory.ProblemOf(err) != directory.NotFound {
					t.Errorf("%s: %v", name, err)
				}
			}
		}

		if _, err := b.beta.Record(t.Context(), delta, rid); directory.ProblemOf(err) != directory.NotFound {
			t.Error(err)
		}
	})
}
