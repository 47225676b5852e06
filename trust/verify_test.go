package trust

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
)

// A proofKit makes proofs of one registration, and lets a test change what goes
// into them before it is signed.
type proofKit struct {
	o      *origin
	change signed.Change
	page   signed.Page
	texts  []string // disclosures
	made   time.Time
	leaf   int64 // where the ledger holds the statement
	signer *Key  // of the checkpoint
}

func newProofKit(t testing.TB) *proofKit {
	t.Helper()
	o := newOrigin(t, alpha)
	now := time.Now()
	doc, err := directory.ParseDocument(directory.KindAD,
		[]byte(`{"agent":"printer","base":"https://printer.alpha.test","secret":"canary","protocols":["https"]}`))
	must(t, err)
	k := &proofKit{o: o, made: now, leaf: 3, signer: o.key}

	k.change = signed.Change{Issuer: alpha, RID: directory.NewRID(now.UnixMilli(), [10]byte{1}), Op: signed.OpPut,
		Epoch: 1, Revision: 7, IssuedAt: now.Unix(), Since: now.Unix(), Leaf: 3, Agent: "printer",
		Owner: identity(t, "spiffe://alpha.test/agent/ada"), Document: doc, Salt: signed.Salt{9}}
	for _, d := range k.change.Disclosures() {
		if d.Name != "secret" {
			k.texts = append(k.texts, d.Text)
		}
	}

	payload := k.statement(t)
	k.page = signed.Page{Issuer: alpha, Epoch: 1, Audience: directory.Mesh, From: 5, To: 8, At: 9, IssuedAt: now.Unix(),
		Digests: []signed.Digest{{RID: k.change.RID, Revision: 7, Op: signed.OpPut, H: directory.HashOf(payload),
			M: signed.HashDisclosures(k.texts), Deadline: now.Unix() + 7200, Lifetime: 7200}}}

	return k
}

func (k *proofKit) statement(t testing.TB) []byte {
	t.Helper()
	payload, err := signed.Statement(signed.StatementFormat, &k.change, k.change.Disclosures())
	must(t, err)

	return payload
}

func (k *proofKit) proof(t testing.TB) *Proof {
	t.Helper()
	jws, err := k.o.ring.Sign(signed.TypeRecord, k.statement(t))
	must(t, err)
	page, err := k.o.ring.Sign(signed.TypePage, k.page.Payload())
	must(t, err)
	bundle, err := k.o.ca.Bundle().Marshal()
	must(t, err)

	return &Proof{Record: signed.Record{JWS: jws, Disclosures: k.texts}.String(), Page: page, Keys: k.o.jws(t),
		Bundle: bundle}
}

// logged adds the statement to a ledger of ten leaves under a signed checkpoint.
func (k *proofKit) logged(t testing.TB, p *Proof, origin string) *Proof {
	t.Helper()
	stored := map[int64]tlog.Hash{}

	read := tlog.HashReaderFunc(func(at []int64) ([]tlog.Hash, error) {
		out := make([]tlog.Hash, len(at))
		for i, n := range at {
			out[i] = stored[n]
		}

		return out, nil
	})
	for n := range int64(10) {
		digest := directory.HashOf(fmt.Append(nil, n))
		if n == k.leaf {
			digest = directory.HashOf(k.statement(t))
		}

		hashes, err := tlog.StoredHashes(n, append([]byte{1}, digest[:]...), read)
		must(t, err)

		for i, h := range hashes {
			stored[tlog.StoredHashIndex(0, n)+int64(i)] = h
		}
	}

	root, err := tlog.TreeHash(10, read)
	must(t, err)
	path, err := tlog.ProveRecord(10, k.leaf, read)
	must(t, err)
	p.Checkpoint = signNote(k.signer, origin, fmt.Sprintf("%s\n10\n%s\n", origin,
		base64.StdEncoding.EncodeToString(root[:])))
	index := uint64(k.leaf)

	p.Index = &index
	for _, h := range path {
		p.Path = append(p.Path, directory.Hash(h))
	}

	return p
}

// signNote signs a C2SP signed note by an Ed25519 key.
func signNote(k *Key, name, text string) string {
	hash := directory.HashOf(append([]byte(name+"\n\x01"), k.Public()...))
	line := append(slices.Clone(hash[:4]), ed25519.Sign(k.private, []byte(text))...)

	return text + "\n— " + name + " " + base64.StdEncoding.EncodeToString(line) + "\n"
}

// signedCheckpoint gives a proof with a checkpoint that its domain has signed and that is right
// but for one line.
func signedCheckpoint(line int, says string) func(*testing.T, *proofKit) *Proof {
	return func(t *testing.T, k *proofKit) *Proof {
		const origin = "alpha.test/roster/1"
		p := k.logged(t, k.proof(t), origin)
		lines := strings.SplitAfter(p.Checkpoint, "\n")[:3]
		lines[line] = says
		p.Checkpoint = signNote(k.signer, origin, strings.Join(lines, ""))

		return p
	}
}

var stepNames = []string{"format", "statement", "anchor", "key attestation", "key document", "page signature", "page",
	"signature", "deadline", "inclusion", "witnesses"}

func TestVerifyProof(t *testing.T) {
	k := newProofKit(t)
	p := k.proof(t)
	report, err := Verify(p.Bytes(), VerifyOptions{Bundle: k.o.ca.Bundle()})
	must(t, err)

	if !report.Authentic || report.Logged || len(report.Steps) != len(stepNames) {
		t.Errorf("%+v", report)
	}

	for i, s := range report.Steps {
		if s.Name != stepNames[i] || s.OK != (i < 9) || s.Skipped != (i >= 9) {
			t.Errorf("step %d: %+v", i, s)
		}
	}

	s := report.Subject
	if s.Domain != "alpha.test" || s.Agent != "printer" || s.Kind != "ad" ||
		s.Owner != "spiffe://alpha.test/agent/ada" || s.Revision != 7 ||
		!s.Redacted || s.Key != k.o.key.ID() || s.Node != "spiffe://alpha.test/roster/node/1" ||
		s.Deadline.Unix() != k.page.Digests[0].Deadline {
		t.Errorf("%+v", s)
	}

	if text := report.String(); !strings.Contains(text, "not logged") || strings.Contains(text, "canary") {
		t.Errorf("%s", text)
	}

	report, err = Verify(k.logged(t, p, "alpha.test/roster/1").Bytes(), VerifyOptions{Bundle: k.o.ca.Bundle()})
	must(t, err)

	if !report.Logged {
		t.Errorf("%s", report)
	}

	certPEM, _ := k.o.ca.PEM()
	other, err := NewCA(beta, time.Now())
	must(t, err)
	otherPEM, _ := other.PEM()
	both, err := ParseBundle(spiffeid.TrustDomain{}, append(certPEM, otherPEM...))
	must(t, err)

	if report, err := Verify(k.proof(t).Bytes(), VerifyOptions{Bundle: both}); err != nil {
		t.Errorf("by a file of several domains' CAs: %v\n%s", err, report)
	}
}

// Requirement: TRUST-016
func TestVerifyNamesTheStep(t *testing.T) {
	stranger := newOrigin(t, beta)
	thief, err := OpenKey(t.TempDir())
	must(t, err)
	rows := []struct {
		name, step string
		code       int
		class      error
		change     func(*testing.T, *proofKit) *Proof
		bundle     *spiffebundle.Bundle
		after      time.Duration // Verify runs so long after the page was made
	}{
		{"a record that is none", "format", 10, ErrFormat, func(t *testing.T, k *proofKit) *Proof {
			p := k.proof(t)
			p.Record = strings.TrimSuffix(p.Record, "~")

			return p
		}, nil, 0},
		{"a page's payload changed", "format", 10, ErrFormat, func(t *testing.T, k *proofKit) *Proof {
			p := k.proof(t)
			p.Page = strings.Replace(p.Page, ".", ".A", 1)

			return p
		}, nil, 0},
		{"a path without a checkpoint", "format", 10, ErrFormat, func(t *testing.T, k *proofKit) *Proof {
			p := k.proof(t)
			p.Path = []directory.Hash{{}}

			return p
		}, nil, 0},
		{"a disclosure of another value", "statement", 10, ErrFormat, func(t *testing.T, k *proofKit) *Proof {
			k.change.Document, err = directory.ParseDocument(directory.KindAD, []byte(`{"base":"https://evil.test"}`))
			must(t, err)

			for _, d := range k.change.Disclosures() {
				if d.Name == "base" {
					p := newProofKit(t).proof(t)
					p.Record += d.Text + "~"

					return p
				}
			}

			return nil
		}, nil, 0},
		{"the bundle of a domain that is not the record's", "anchor", 12, ErrKey, plain, stranger.ca.Bundle(), 0},
		{"another CA of the same name", "key attestation", 12, ErrKey, plain, newOrigin(t, alpha).ca.Bundle(), 0},
		{"an SVID that had expired when the page was made", "key attestation", 12, ErrKey,
			func(t *testing.T, k *proofKit) *Proof {
				k.page.IssuedAt += 3601
				return k.proof(t)
			}, nil, 3700 * time.Second},
		{"an attestation of another key", "key attestation", 12, ErrKey, func(t *testing.T, k *proofKit) *Proof {
			key := k.o.signingKey(t)
			key.Attestations[0], err = thief.Attest(k.o.svid, time.Now())
			must(t, err)
			k.o.issue(t, 2, key)

			return k.proof(t)
		}, nil, 0},
		{"a key document by a key that it lacks", "key document", 12, ErrKey, func(t *testing.T, k *proofKit) *Proof {
			p := k.proof(t)
			p.Keys, err = thief.sign(signed.TypeKeys, k.o.doc.Payload())
			must(t, err)

			return p
		}, nil, 0},
		{"a key document with another signature", "key document", 10, signed.ErrSignature,
			func(t *testing.T, k *proofKit) *Proof {
				p := k.proof(t)
				p.Keys = mutateSignature(p.Keys)

				return p
			}, nil, 0},
		{"a key document that had expired", "key document", 12, ErrKey, func(t *testing.T, k *proofKit) *Proof {
			k.o.doc.Expires = k.page.IssuedAt
			k.o.ring.SetOwn(k.o.doc)

			return k.proof(t)
		}, nil, 0},
		{"another domain's key document", "key attestation", 12, ErrKey, func(t *testing.T, k *proofKit) *Proof {
			p := k.proof(t)
			p.Keys = stranger.jws(t)

			return p
		}, nil, 0},
		{"a page with another signature", "page signature", 10, signed.ErrSignature,
			func(t *testing.T, k *proofKit) *Proof {
				p := k.proof(t)
				p.Page = mutateSignature(p.Page)

				return p
			}, nil, 0},
		{"a page by a stranger's key", "page signature", 12, ErrKey, func(t *testing.T, k *proofKit) *Proof {
			p := k.proof(t)
			p.Page, err = thief.sign(signed.TypePage, k.page.Payload())
			must(t, err)

			return p
		}, nil, 0},
		{"another domain's page", "page", 10, ErrFormat, func(t *testing.T, k *proofKit) *Proof {
			k.page.Issuer = beta
			return k.proof(t)
		}, nil, 0},
		{"a page of another registration (u)", "page", 10, ErrFormat, func(t *testing.T, k *proofKit) *Proof {
			k.page.Digests[0].RID = directory.NewRID(1, [10]byte{2})
			return k.proof(t)
		}, nil, 0},
		{"a page with another statement (h)", "page", 10, ErrFormat, func(t *testing.T, k *proofKit) *Proof {
			k.page.Digests[0].H[0]++
			return k.proof(t)
		}, nil, 0},
		{"a page with other disclosures (m)", "page", 10, ErrFormat, func(t *testing.T, k *proofKit) *Proof {
			k.page.Digests[0].M[0]++
			return k.proof(t)
		}, nil, 0},
		{"a page of a revision before (r)", "page", 10, ErrFormat, func(t *testing.T, k *proofKit) *Proof {
			k.page.Digests[0].Revision = 6
			return k.proof(t)
		}, nil, 0},
		{"a page that ends it", "page", 10, ErrFormat, func(t *testing.T, k *proofKit) *Proof {
			k.page.Digests[0].Op = signed.OpEnd
			return k.proof(t)
		}, nil, 0},
		{"a page of the future", "page", 10, ErrFormat, func(t *testing.T, k *proofKit) *Proof {
			k.page.IssuedAt += 62
			return k.proof(t)
		}, nil, 0},
		{"a disclosure left out", "page", 10, ErrFormat, func(t *testing.T, k *proofKit) *Proof {
			k.texts = k.texts[:len(k.texts)-1]
			return k.proof(t)
		}, nil, 0},
		{"a record with another signature", "signature", 10, signed.ErrSignature,
			func(t *testing.T, k *proofKit) *Proof {
				p := k.proof(t)
				jws, rest, _ := strings.Cut(p.Record, "~")
				p.Record = mutateSignature(jws) + "~" + rest

				return p
			}, nil, 0},
		{"a record by a stranger's key", "signature", 12, ErrKey, func(t *testing.T, k *proofKit) *Proof {
			p := k.proof(t)
			_, rest, _ := strings.Cut(p.Record, "~")
			jws, err := thief.sign(signed.TypeRecord, k.statement(t))
			must(t, err)
			p.Record = jws + "~" + rest

			return p
		}, nil, 0},
		{"a record by a key that nothing attests", "key attestation", 12, ErrKey,
			func(t *testing.T, k *proofKit) *Proof {
				k.o.issue(t, 2, k.o.signingKey(t), signed.SigningKey{Public: thief.Public(), Node: k.o.svid.ID})
				p := k.proof(t)
				_, rest, _ := strings.Cut(p.Record, "~")
				jws, err := thief.sign(signed.TypeRecord, k.statement(t))
				must(t, err)
				p.Record = jws + "~" + rest

				return p
			}, nil, 0},
		{"a page by a key that nothing attests", "key attestation", 12, ErrKey, func(t *testing.T, k *proofKit) *Proof {
			k.o.issue(t, 2, k.o.signingKey(t), signed.SigningKey{Public: thief.Public(), Node: k.o.svid.ID})
			p := k.proof(t)
			p.Page, err = thief.sign(signed.TypePage, k.page.Payload())
			must(t, err)

			return p
		}, nil, 0},
		{"a key document by a key that nothing attests", "key attestation", 12, ErrKey,
			func(t *testing.T, k *proofKit) *Proof {
				k.o.issue(t, 2, k.o.signingKey(t), signed.SigningKey{Public: thief.Public(), Node: k.o.svid.ID})
				p := k.proof(t)
				p.Keys, err = thief.sign(signed.TypeKeys, k.o.doc.Payload())
				must(t, err)

				return p
			}, nil, 0},
		{"a deadline that has passed", "deadline", 14, ErrExpired, plain, nil, 7200 * time.Second},
		{"a path that leads elsewhere", "inclusion", 13, ErrInclusion, func(t *testing.T, k *proofKit) *Proof {
			p := k.logged(t, k.proof(t), "alpha.test/roster/1")
			p.Path[0][0]++

			return p
		}, nil, 0},
		{"a path too short", "inclusion", 13, ErrInclusion, func(t *testing.T, k *proofKit) *Proof {
			p := k.logged(t, k.proof(t), "alpha.test/roster/1")
			p.Path = p.Path[1:]

			return p
		}, nil, 0},
		{"another index", "inclusion", 13, ErrInclusion, func(t *testing.T, k *proofKit) *Proof {
			p := k.logged(t, k.proof(t), "alpha.test/roster/1")
			other := *p.Index + 1
			p.Index = &other

			return p
		}, nil, 0},
		{"another leaf than the statement names", "inclusion", 13, ErrInclusion,
			func(t *testing.T, k *proofKit) *Proof {
				k.leaf = 5
				return k.logged(t, k.proof(t), "alpha.test/roster/1")
			}, nil, 0},
		{"another ledger's checkpoint", "inclusion", 13, ErrInclusion, func(t *testing.T, k *proofKit) *Proof {
			return k.logged(t, k.proof(t), "alpha.test/roster/2")
		}, nil, 0},
		{"a checkpoint by a revoked key", "inclusion", 13, ErrInclusion, func(t *testing.T, k *proofKit) *Proof {
			attestation, err := thief.Attest(k.o.svid, time.Now())
			must(t, err)
			k.o.issue(t, 2, k.o.signingKey(t), signed.SigningKey{Public: thief.Public(), Node: k.o.svid.ID,
				Attestations: []string{attestation}})
			k.o.doc.Revoked, k.signer = []string{thief.ID()}, thief

			return k.logged(t, k.proof(t), "alpha.test/roster/1")
		}, nil, 0},
		{"a checkpoint by a key that nothing attests", "inclusion", 13, ErrInclusion,
			func(t *testing.T, k *proofKit) *Proof {
				k.o.issue(t, 2, k.o.signingKey(t), signed.SigningKey{Public: thief.Public(), Node: k.o.svid.ID})
				k.signer = thief

				return k.logged(t, k.proof(t), "alpha.test/roster/1")
			}, nil, 0},
		{"a checkpoint with another size", "inclusion", 13, ErrInclusion, func(t *testing.T, k *proofKit) *Proof {
			p := k.logged(t, k.proof(t), "alpha.test/roster/1")
			p.Checkpoint = strings.Replace(p.Checkpoint, "\n10\n", "\n11\n", 1)

			return p
		}, nil, 0},
		{"a checkpoint before the leaf", "inclusion", 13, ErrInclusion, signedCheckpoint(1, "4\n"), nil, 0},
		{"a checkpoint of a negative size", "inclusion", 13, ErrInclusion, signedCheckpoint(1, "-1\n"), nil, 0},
		{"a checkpoint whose size has a zero before it", "inclusion", 13, ErrInclusion,
			signedCheckpoint(1, "010\n"), nil, 0},
		{"a checkpoint with a short root", "inclusion", 13, ErrInclusion, signedCheckpoint(2, "AAAA\n"), nil, 0},
		{"a checkpoint without a root", "inclusion", 13, ErrInclusion, signedCheckpoint(2, ""), nil, 0},
	}

	shown := map[string]bool{}
	for _, row := range rows {
		k := newProofKit(t)
		input := row.change(t, k).Bytes()

		bundle := row.bundle
		if bundle == nil {
			bundle = k.o.ca.Bundle()
		}

		report, err := Verify(input, VerifyOptions{Bundle: bundle, At: k.made.Add(row.after)})

		var failed *StepError
		if !errors.As(err, &failed) || failed.Step != row.step || ExitCode(err) != row.code ||
			!errors.Is(err, row.class) {
			t.Errorf("%s: %v, exit code %d; want step %q, %d, %v", row.name, err, ExitCode(err), row.step, row.code,
				row.class)

			continue
		}

		at := slices.Index(stepNames, row.step)
		for i, s := range report.Steps {
			if s.OK != (i < at) || s.Skipped != (i > at) {
				t.Errorf("%s: step %s is %+v", row.name, s.Name, s)
			}
		}

		if report.Authentic {
			t.Errorf("%s: called authentic", row.name)
		}

		shown[row.step] = true
	}

	if len(shown) != len(stepNames)-1 { // witnesses are judged by a policy, which these have not
		t.Errorf("only %v fail", shown)
	}
}

func plain(t *testing.T, k *proofKit) *Proof { return k.proof(t) }

// A record outlives the SVID under which it was signed.
//
// Requirement: TRUST-009
func TestVerifyAfterTheSVIDExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newProofKit(t)
		p := k.proof(t)
		time.Sleep(90 * time.Minute)

		if report, err := Verify(p.Bytes(), VerifyOptions{Bundle: k.o.ca.Bundle()}); err != nil {
			t.Errorf("%v\n%s", err, report)
		}
	})
}

// A registration that was ended, and one that was only renewed or moved to a
// later epoch since its statement.
func TestVerifyOtherOperations(t *testing.T) {
	k := newProofKit(t)

	k.page.Digests[0].Op, k.page.Digests[0].Revision = signed.OpRenew, 8
	if report, err := Verify(k.proof(t).Bytes(), VerifyOptions{Bundle: k.o.ca.Bundle()}); err != nil {
		t.Errorf("renewed: %v\n%s", err, report)
	}

	k.page.Epoch, k.page.From, k.page.To, k.page.Digests[0].Revision = 2, 0, 2, 1
	if report, err := Verify(k.proof(t).Bytes(), VerifyOptions{Bundle: k.o.ca.Bundle()}); err != nil {
		t.Errorf("in a later epoch: %v\n%s", err, report)
	}

	k = newProofKit(t)
	k.change.Op, k.texts = signed.OpEnd, nil
	payload, err := signed.Statement(signed.StatementFormat, &k.change, nil)
	must(t, err)
	jws, err := k.o.ring.Sign(signed.TypeRecord, payload)
	must(t, err)
	k.page.Digests[0].Op, k.page.Digests[0].H = signed.OpEnd, directory.HashOf(payload)
	p := k.proof(t)

	p.Record = jws + "~"
	if report, err := Verify(p.Bytes(), VerifyOptions{Bundle: k.o.ca.Bundle()}); err != nil ||
		!strings.Contains(report.String(), "ended") {
		t.Errorf("ended: %v\n%s", err, report)
	}
}

// verify names who registered the contents and the other identities that its statement
// has, and how far they are known: all of them, or none with a withheld owner.
//
// Requirement: SEC-006, SEC-008
func TestVerifyNamesTheRegistrant(t *testing.T) {
	tool := identity(t, "spiffe://alpha.test/tool/commissioner")

	for name, test := range map[string]struct {
		owner      string
		provenance directory.Provenance
		withhold   bool
		want       Subject
		says       string
	}{
		"the owner": {owner: "spiffe://alpha.test/agent/ada",
			want: Subject{Owner: "spiffe://alpha.test/agent/ada", Registrant: "spiffe://alpha.test/agent/ada",
				RegistrantState: directory.RegistrantVerified},
			says: "registrant spiffe://alpha.test/agent/ada (verified)"},
		"a tool, and an operator": {owner: "spiffe://alpha.test/agent/ada",
			provenance: directory.Provenance{Registrant: tool, RegisteredBy: tool,
				TransferredBy: identity(t, "spiffe://alpha.test/ops/otto"), ImportedFrom: "https://registry.example"},
			want: Subject{Owner: "spiffe://alpha.test/agent/ada", Registrant: tool.String(),
				RegisteredBy: tool.String(), TransferredBy: "spiffe://alpha.test/ops/otto",
				ImportedFrom: "https://registry.example", RegistrantState: directory.RegistrantVerified},
			says: "owner spiffe://alpha.test/agent/ada, transferred by spiffe://alpha.test/ops/otto, " +
				"imported from https://registry.example"},
		"of another domain": {owner: "spiffe://gamma.test/agent/eve",
			want: Subject{Owner: "spiffe://gamma.test/agent/eve", Registrant: "spiffe://gamma.test/agent/eve",
				RegistrantState: directory.RegistrantClaimed},
			says: "registrant spiffe://gamma.test/agent/eve (claimed)"},
		"withheld": {owner: "spiffe://alpha.test/agent/ada", provenance: directory.Provenance{Registrant: tool},
			withhold: true, says: "others withheld"},
	} {
		k := newProofKit(t)
		k.change.Owner, k.change.Provenance = identity(t, test.owner), test.provenance

		k.texts = nil
		for _, d := range k.change.Disclosures() {
			if !test.withhold || d.Name != "owner" && d.Name != "registrant" {
				k.texts = append(k.texts, d.Text)
			}
		}

		k.page.Digests[0].H = directory.HashOf(k.statement(t))
		k.page.Digests[0].M = signed.HashDisclosures(k.texts)

		report, err := Verify(k.proof(t).Bytes(), VerifyOptions{Bundle: k.o.ca.Bundle()})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}

		subject := report.Subject

		got := Subject{Owner: subject.Owner, Registrant: subject.Registrant, RegisteredBy: subject.RegisteredBy,
			TransferredBy: subject.TransferredBy, ImportedFrom: subject.ImportedFrom,
			RegistrantState: subject.RegistrantState}
		if got != test.want || !strings.Contains(report.String(), test.says) {
			t.Errorf("%s: got %+v and %q, want %+v and %q", name, got, report.String(), test.want, test.says)
		}
	}
}

func TestParseProof(t *testing.T) {
	k := newProofKit(t)

	good := string(k.proof(t).Bytes())
	if len(good) > 8<<10 {
		t.Errorf("a proof file has %d bytes", len(good))
	}

	p, err := ParseProof([]byte(good))
	must(t, err)

	if string(p.Bytes()) != good {
		t.Error("a proof file is not read as it was written")
	}

	for name, text := range map[string]string{
		"nothing":           "",
		"null":              "null",
		"an empty object":   "{}",
		"an unknown member": strings.Replace(good, "{", `{"x":1,`, 1),
		"a member twice":    strings.Replace(good, "{", `{"record":"x",`, 1),
		"a case variant":    strings.Replace(good, `"record"`, `"Record"`, 1),
		"something behind":  good + "{}",
		"an index alone":    strings.Replace(good, "{", `{"index":1,`, 1),
		"a wrong type":      strings.Replace(good, "{", `{"checkpoint":1,`, 1),
		"too large":         good + strings.Repeat(" ", MaxProof),
	} {
		if _, err := ParseProof([]byte(text)); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
