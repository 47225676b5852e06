package federation

import (
	"bytes"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/roster-mesh/roster/federation/replica"
	"github.com/roster-mesh/roster/federation/store"
	"go.etcd.io/bbolt"
)

// newer is what a later release understands.
var newer = signed.Dialect{Critical: []string{"colour"}}

// grown returns a payload with what a later release adds to it.
func grown(payload []byte, tail string) []byte {
	return append(bytes.TrimSuffix(bytes.Clone(payload), []byte("}")), tail+"}"...)
}

const (
	ignored  = `,"ext":{ "colour" : "blue"}`
	critical = `,"ext":{"colour":"blue"},"crit":["colour"]`
)

func withTail(tail string) func([]byte) []byte {
	return func(payload []byte) []byte { return grown(payload, tail) }
}

// inFormat99 returns a statement in a format that no release has.
func inFormat99(payload []byte) []byte {
	return grown(bytes.Replace(payload, []byte(`"format":1`), []byte(`"format":99`), 1), `,"more":[1, 2]`)
}

// signing has alpha's node sign what a later release signs.
func (b *bench) signing(tail string) {
	b.alpha.keys.rewrite = func(typ string, payload []byte) []byte {
		if typ == signed.TypePage || typ == signed.TypeHead {
			return grown(payload, tail)
		}

		return payload
	}
}

// upgrade starts beta again with another dialect.
func (b *bench) upgrade(to signed.Dialect) {
	b.Helper()
	b.beta.cfg.Dialect = to
	b.beta.reopen(b)
}

// status is what beta says of alpha.
func (b *bench) status() replica.PeerStatus { return b.beta.Peers()[0] }

// recordsAsked counts the records that beta asks for.
func (b *bench) recordsAsked() *int {
	asked := new(int)
	b.world.tap = func(_ string, r *http.Request, body []byte) []byte {
		if r.URL.Path == protocol.PathRecords {
			*asked++
		}

		return body
	}

	return asked
}

// Requirement: FORM-001
func TestWhatALaterReleaseAddsChangesNoOutcome(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		b.signing(ignored)
		b.origin.rewrite = withTail(ignored)
		rid := b.origin.register("one", 600)
		b.pull()
		must(t, b.beta.receiver.askHead(t.Context(), b.beta.origins.Get(alpha), b.giver()))

		if is := b.beta.shown(alpha); len(is) != 1 || is[rid] == nil {
			t.Fatalf("it shows %v", is)
		}

		// What was signed is what is kept and relayed.
		record, err := b.beta.Record(t.Context(), alpha, rid)
		if err != nil || !strings.Contains(record, directory.B64.EncodeToString(b.origin.regs[rid].payload)) {
			t.Errorf("got %q, %v", record, err)
		}

		b.beta.reopen(t)

		if is := b.beta.shown(alpha); len(is) != 1 {
			t.Errorf("after a restart it shows %v", is)
		}
	})
}

// Requirement: FORM-001
func TestUnsupportedIsFoundBehindTheSignature(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		lost := newKeyring(alpha, "lost", b.origin)
		b.origin.listKeys([]string{signed.KeyID(lost.public())}, b.alpha.keys, lost)
		b.origin.register("one", 600)
		b.pull()

		for says, payload := range map[string][]byte{
			`the critical extension "colour", which this release does not support`: grown(b.page(nil), critical),
			"page format 99 is not supported; this release reads formats up to 1": grown(bytes.Replace(b.page(nil),
				[]byte(`"v":1`), []byte(`"v":99`), 1), `,"more":1`),
		} {
			by := func(k *keyring) string {
				text, _ := k.Sign(signed.TypePage, payload)
				return text
			}
			stranger := bytes.Replace(payload, []byte("alpha.test"), []byte("delta.test"), 1)
			ofStranger, _ := b.alpha.keys.Sign(signed.TypePage, stranger)
			noJSON, _ := b.alpha.keys.Sign(signed.TypePage, append(payload, ' ', 'x'))

			refuse(b, protocol.CodeOriginUnknown, ofStranger)
			refuse(b, protocol.CodeKeyUnknown, by(newKeyring(alpha, "else", b.origin)))
			refuse(b, protocol.CodeKeyRevoked, by(lost))
			refuse(b, protocol.CodeSignature, flipped(by(b.alpha.keys)))
			refuse(b, protocol.CodeJSON, noJSON)

			code, err := b.take(alpha, by(b.alpha.keys))
			if protocol.CodeOf(err) != protocol.CodeUnsupported || !errors.Is(err, signed.ErrUnsupported) ||
				code != "" {
				t.Errorf("got %q, %v", code, err)
			}

			if err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("the refusal is %v, without %q", err, says)
			}
		}
	})
}

// Requirement: FORM-003
func TestAnUnsupportedPageLeavesItsStreamAtItsWatermark(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		rid := b.origin.register("one", 600)
		b.pull()
		must(t, b.beta.receiver.askHead(t.Context(), b.beta.origins.Get(alpha), b.giver()))
		before := b.status()

		b.signing(critical)
		b.origin.register("two", 600)

		var asked atomic.Int64
		b.world.tap = func(_ string, _ *http.Request, body []byte) []byte {
			asked.Add(1)
			return body
		}
		defer b.beta.run(t)()
		time.Sleep(5 * time.Minute)

		after := b.status()
		if after.State != "unsupported" || !strings.Contains(after.Unsupported, "colour") {
			t.Errorf("the peer is %q: %q", after.State, after.Unsupported)
		}

		if after.Watermark != before.Watermark || len(b.beta.shown(alpha)) != 1 || b.beta.shown(alpha)[rid] == nil {
			t.Errorf("the stream is at %d after %d, and shows %v", after.Watermark, before.Watermark,
				b.beta.shown(alpha))
		}

		if len(after.Refused) != 0 || after.Received[protocol.CodeUnsupported] == 0 {
			t.Errorf("refused %v, received %v", after.Refused, after.Received)
		}

		// 47 of these are heads, by which this node knows that the peer answers.
		if n := asked.Load(); n > 80+47 {
			t.Errorf("the peer is asked %d times in five minutes for what can't be read", n)
		}

		if n := b.log.n.Load(); n > 2 {
			t.Errorf("%d lines were written in five minutes", n)
		}

		// What is there lives to its deadline, and no longer.
		time.Sleep(6 * time.Minute)

		if len(b.beta.shown(alpha)) != 0 {
			t.Error("what was told outlives its deadline")
		}
	})
}

// Whoever isn't the origin may repeat an old message that can't be dated.
//
// Requirement: FORM-003
func TestWhoRepeatsAnUnsupportedMessageSaysNothingOfItsOrigin(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		b.origin.register("one", 600)
		b.pull()
		must(t, b.beta.receiver.askHead(t.Context(), b.beta.origins.Get(alpha), b.giver()))
		b.signing(critical)
		head, err := b.alpha.publisher.Head()
		must(t, err)
		page, err := b.alpha.publisher.Page(directory.Mesh, 0, 10, false)
		must(t, err)

		before := b.status()
		time.Sleep(time.Minute)
		b.beta.origins.Get(alpha).Answers.Begin()

		for _, from := range []replica.Sender{{Domain: gamma}, {Domain: gamma, Pushed: true}} {
			if err := b.beta.receiver.takeHead(t.Context(), from, b.giver(),
				head); protocol.CodeOf(err) != protocol.CodeUnsupported {
				t.Fatal(err)
			}

			if _, _, err := b.beta.receiver.take(t.Context(), from, b.giver(),
				page.Text); protocol.CodeOf(err) != protocol.CodeUnsupported {
				t.Fatal(err)
			}
		}

		if after := b.status(); after.State == "unsupported" || after.Unsupported != "" ||
			after.LastHeard != before.LastHeard {
			t.Errorf("the peer is %q, last heard %v: %q", after.State, after.LastHeard, after.Unsupported)
		}

		if err := b.beta.receiver.takeHead(t.Context(), replica.Sender{Domain: alpha}, b.giver(),
			head); protocol.CodeOf(err) != protocol.CodeUnsupported {
			t.Fatal(err)
		}

		must(t, b.beta.receiver.refreshKeys(t.Context(), b.beta.origins.Get(alpha), b.giver())) // its node answers

		if after := b.status(); after.State != "unsupported" {
			t.Errorf("the peer is %q once its own node says so", after.State)
		}
	})
}

// Requirement: FORM-003
func TestAReleaseThatReadsThePagesGoesOnFromTheWatermark(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		b.origin.register("one", 600)
		b.pull()
		b.signing(critical)
		b.origin.register("two", 600)

		page, err := b.alpha.publisher.Page(directory.Mesh, b.status().Watermark, 10, false)
		must(t, err)

		if _, err := b.take(alpha, page.Text); protocol.CodeOf(err) != protocol.CodeUnsupported {
			t.Fatal(err)
		}

		if b.status().Unsupported == "" {
			t.Error("the status says nothing of it")
		}

		b.upgrade(newer)

		var since []string
		b.world.tap = func(_ string, r *http.Request, body []byte) []byte {
			if r.URL.Path == protocol.PathPages {
				since = append(since, r.URL.Query().Get("since"))
			}

			return body
		}
		b.pull()

		if len(b.beta.shown(alpha)) != 2 || b.status().Unsupported != "" || len(since) == 0 || since[0] == "0" {
			t.Errorf("it shows %v after pulls from %v; %q", b.beta.shown(alpha), since, b.status().Unsupported)
		}
	})
}

// Requirement: FORM-003
func TestARecordThatIsUnsupportedIsKeptUntilItCanBeOpened(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		b.origin.listTo(beta, gamma)
		plain := b.origin.register("plain", 600)
		b.origin.rewrite = withTail(critical)
		later := b.origin.register("later", 600)
		b.origin.rewrite = inFormat99
		never := b.origin.register("never", 600)
		b.origin.rewrite = nil
		b.pull()

		check := func(opened bool) {
			t.Helper()

			want := map[string]uint64{"1": 1, "other": 1}
			if opened {
				delete(want, "1")
			}

			is, s := b.beta.shown(alpha), b.status()
			if is[plain] == nil || (is[later] != nil) != opened || is[never] != nil {
				t.Errorf("it shows %v", is)
			}

			if s.Records != 3 || s.Pending != 0 || s.Received[protocol.CodeRecord] != 0 ||
				!equalCounts(s.Unopened, want) {
				t.Errorf("%d records, %d pending, %d refused; unopened %v, want %v",
					s.Records, s.Pending, s.Received[protocol.CodeRecord], s.Unopened, want)
			}
		}
		check(false)

		// By their names they are given to whoever may have the stream.
		b.origin.register("more", 600)

		names := protocol.RecordsRequest{Origin: alpha.Name()}
		for _, rid := range []directory.RID{later, never} {
			d := b.origin.regs[rid].announced
			names.Names = append(names.Names, [2]directory.Hash{d.H, d.M})
		}

		answer := b.beta.ask(t.Context(), nodeID(gamma, 1).String(), "POST", protocol.PathRecords,
			string(names.Bytes())).Body.String()
		for _, rid := range []directory.RID{later, never} {
			if !strings.Contains(answer, directory.B64.EncodeToString(b.origin.regs[rid].payload)) {
				t.Errorf("the record of %s is not relayed", b.origin.regs[rid].agent)
			}
		}

		if _, err := b.beta.Record(t.Context(), alpha, later); directory.ProblemOf(err) != directory.NotFound {
			t.Errorf("it is shown as a registration: %v", err)
		}

		// Neither a restart nor an upgrade asks for them again.
		asked := b.recordsAsked()
		b.beta.reopen(t)
		check(false)
		b.upgrade(newer)
		check(true)
		b.upgrade(newer)
		check(true)
		b.upgrade(signed.Dialect{}) // and back: what can't be read any more waits again
		check(false)
		b.upgrade(newer)
		check(true)

		if *asked != 0 {
			t.Errorf("records were asked for %d times", *asked)
		}

		// What takes a record's place, or ends, is counted no more.
		b.upgrade(signed.Dialect{})
		b.origin.replace(later, 600)
		b.origin.remove(never)
		b.pull()

		if s := b.status(); len(s.Unopened) != 0 || b.beta.shown(alpha)[later] == nil {
			t.Errorf("unopened %v", s.Unopened)
		}
	})
}

func equalCounts(a, b map[string]uint64) bool {
	for k, n := range a {
		if b[k] != n {
			return false
		}
	}

	return len(a) == len(b)
}

// What a release can't open it can't judge: the one that can does.
//
// Requirement: FORM-003
func TestARecordIsJudgedWhenItIsOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, func(c *Config) {
			p := active(alpha, 1)
			p.Import.Names = []string{"wanted*"}
			c.Peerings = func() []directory.Peering { return []directory.Peering{p} }
		})
		b.origin.rewrite = withTail(critical)
		wanted := b.origin.register("wanted", 600)
		unwanted := b.origin.register("unwanted", 600)
		bad := b.origin.register("wanted-bad", 600)
		wrong := b.origin.register("wanted-wrong", 600)
		b.origin.spoil(bad, `{"base":"https://agent.test","_sd":[1]}`)
		b.origin.spoil(wrong, `{"base":7}`)
		b.pull()

		if s := b.status(); s.Records != 4 || s.Unopened["1"] != 4 || s.Received[protocol.CodeRecord] != 0 {
			t.Fatalf("%d records, unopened %v, received %v", s.Records, s.Unopened, s.Received)
		}

		b.upgrade(newer)

		is, s := b.beta.shown(alpha), b.status()
		if len(is) != 1 || is[wanted] == nil || is[unwanted] != nil || is[bad] != nil || is[wrong] != nil {
			t.Errorf("it shows %v", is)
		}

		_, _, h, _, err := b.beta.heldRecord(alpha, wanted)
		if err != nil || h.Owner != store.OwnerKeyOf(is[wanted]) || h.Owner == 0 {
			t.Errorf("it counts for the owner %x: %v", h.Owner, err)
		}

		if s.Records != 2 || len(s.Unopened) != 0 || s.Pending != 0 {
			t.Errorf("%d records, %d pending, unopened %v", s.Records, s.Pending, s.Unopened)
		}
	})
}

// The page says of which registration a record is, also of one that can't be opened.
//
// Requirement: FORM-003
func TestAnUnsupportedRecordOfAnotherRegistrationIsRefused(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		b.origin.rewrite = func(payload []byte) []byte {
			return inFormat99(bytes.Replace(payload, []byte(`"uid":"0`), []byte(`"uid":"7`), 1))
		}
		b.origin.register("one", 600)
		b.pull()

		if s := b.status(); s.Records != 0 || len(s.Unopened) != 0 || s.Received[protocol.CodeRecord] != 1 {
			t.Errorf("%d records, unopened %v, received %v", s.Records, s.Unopened, s.Received)
		}
	})
}

// Requirement: FORM-003
func TestUnsupportedRecordsCountInTheQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, func(c *Config) {
			p := active(alpha, 1)
			p.Import.Records = 2
			c.Peerings = func() []directory.Peering { return []directory.Peering{p} }
		})

		b.origin.rewrite = inFormat99
		for _, agent := range []string{"a", "b", "c"} {
			b.origin.register(agent, 600)
		}

		b.pull()

		if s := b.status(); s.Records != 2 || s.OverQuota != 1 || s.Unopened["other"] != 2 {
			t.Errorf("%d records, %d over the quota, unopened %v", s.Records, s.OverQuota, s.Unopened)
		}
	})
}

// A store of another version is named, and left alone.
func TestAStoreOfAnotherVersionIsNotOpened(t *testing.T) {
	b := newBench(t, nil)
	must(t, b.beta.store.File().Update(func(tx *bbolt.Tx) error {
		return tx.Bucket(store.BucketMeta).Put(store.KeyVersion, []byte("7"))
	}))
	must(t, b.beta.Close())

	if _, err := Open(b.beta.cfg); err == nil || !strings.Contains(err.Error(), "version 7") {
		t.Errorf("got %v", err)
	}

	b.beta.Mesh = nil
	b.beta.cfg.Dir = t.TempDir()
	b.beta.reopen(t)
}

// Requirement: FORM-004
func TestOneUnknownMemberInAnyAnswerChangesNoOutcome(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		b.origin.listTo(beta, gamma)
		first := b.origin.register("one", 600)
		lines := 0
		b.world.tap = func(_ string, r *http.Request, body []byte) []byte {
			if r.URL.Path != protocol.PathRecords {
				return body
			}

			lines += bytes.Count(body, []byte("\n"))

			return bytes.ReplaceAll(body, []byte("}\n"), []byte(`,"more":{"x":[1]}}`+"\n"))
		}
		b.pull()

		if lines == 0 || b.beta.shown(alpha)[first] == nil || len(b.status().Refused) != 0 {
			t.Errorf("of %d lines it shows %v; refused %v", lines, b.beta.shown(alpha), b.status().Refused)
		}

		// A refusal with more in it is read as the refusal that it is.
		if got := protocol.Quote([]byte(`{"more":1,"detail":"no","status":403}`)); got != `"no"` {
			t.Errorf("got %s", got)
		}

		// And what is asked with more in it is answered.
		d := b.origin.regs[first].announced
		body := `{"more":[1],"origin":"alpha.test","names":[["` + d.H.String() + `","` + d.M.String() +
			`"]],"less":null}`

		w := b.alpha.ask(t.Context(), nodeID(beta, 1).String(), "POST", protocol.PathRecords+"?later=1", body)
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"record":"`) {
			t.Errorf("got %d %s", w.Code, w.Body)
		}

		for _, path := range []string{protocol.PathHeads, protocol.PathKeys, protocol.PathPages} {
			w := b.alpha.ask(t.Context(), nodeID(beta, 1).String(), "GET", path+"?origin=alpha.test&aud=mesh&later=1",
				"")
			if w.Code != http.StatusOK {
				t.Errorf("%s: %d", path, w.Code)
			}
		}
	})
}

// A store in which a later release tells more formats apart is read by this one.
//
// Requirement: FORM-004
func TestFormatsThatALaterReleaseTellsApartAreCounted(t *testing.T) {
	var u store.Usage
	u.Count(&store.Entry{Record: store.RecordHeld, Format: 2}, 1)
	u.Count(&store.Entry{Record: store.RecordHeld, Format: 200}, 1)

	if got := u.Unopened.ByFormat(); got["2"] != 1 || got["other"] != 1 {
		t.Errorf("they are counted as %v", got)
	}
}
