package checkpoint_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"filippo.io/torchwood"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/checkpoint"
	"github.com/roster-mesh/roster/directory/directorytest"
)

const origin = "alpha.test/roster/1"

// keyOf returns the private key that a name stands for, the same each time.
// cosigned returns when a witness cosigned a note, if it did.
func cosigned(n *checkpoint.Note, name string, key ed25519.PublicKey) (at time.Time, ok bool) {
	at, err := n.Verify(checkpoint.VerifierKey{Name: name, Type: checkpoint.TypeWitness, Key: key})
	return at, err == nil
}

func keyOf(name string) ed25519.PrivateKey {
	seed := directory.HashOf([]byte(name))
	return ed25519.NewKeyFromSeed(seed[:])
}

func public(name string) ed25519.PublicKey { return keyOf(name).Public().(ed25519.PublicKey) }

// vkey returns the key by which name signs as a log or as a witness.
func vkey(keyName string, kind byte, of string) checkpoint.VerifierKey {
	return checkpoint.VerifierKey{Name: keyName, Type: kind, Key: public(of)}
}

var when = time.Unix(1_800_000_000, 0).UTC()

// A tree is a log in memory.
type tree struct{ hashes []tlog.Hash }

func (t *tree) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	var out []tlog.Hash
	for _, i := range indexes {
		out = append(out, t.hashes[i])
	}

	return out, nil
}

func entry(i int) []byte { return fmt.Append([]byte{1}, "entry ", i) }

func treeOf(t *testing.T, size int) *tree {
	t.Helper()

	tr := &tree{}
	for i := range size {
		hashes, err := tlog.StoredHashes(int64(i), entry(i), tr)
		must(t, err)

		tr.hashes = append(tr.hashes, hashes...)
	}

	return tr
}

func (t *tree) checkpoint(size int) checkpoint.Checkpoint {
	root, err := tlog.TreeHash(int64(size), t)
	if err != nil {
		panic(err)
	}

	return checkpoint.Checkpoint{Origin: origin, Size: uint64(size), Root: directory.Hash(root)}
}

func hashesOf(proof []tlog.Hash) []directory.Hash {
	var out []directory.Hash
	for _, h := range proof {
		out = append(out, directory.Hash(h))
	}

	return out
}

func mustParse(t *testing.T, text string) *checkpoint.Note {
	t.Helper()

	n, err := checkpoint.Parse(text)
	must(t, err)

	return n
}

// cosignedNote returns a note of ten leaves by member a, cosigned by witnesses.
func cosignedNote(t *testing.T, witnesses ...string) *checkpoint.Note {
	t.Helper()

	text := checkpoint.Sign(treeOf(t, 10).checkpoint(10), keyOf("a"))
	for _, w := range witnesses {
		text += checkpoint.Cosign(mustParse(t, text), w, keyOf(w), when)
	}

	return mustParse(t, text)
}

// Requirement: LOG-005
// x/mod and torchwood read what Sign and Cosign write.
func TestOthersReadWhatIsWritten(t *testing.T) {
	n := cosignedNote(t, "beta.test/witness", "gamma.test/witness")

	policy := fmt.Sprintf("log %s\nwitness b %s\nwitness c %s\ngroup both all b c\nquorum both\n",
		vkey(origin, checkpoint.TypeLog, "a"), vkey("beta.test/witness", checkpoint.TypeWitness, "beta.test/witness"),
		vkey("gamma.test/witness", checkpoint.TypeWitness, "gamma.test/witness"))

	judge, err := torchwood.ParsePolicy([]byte(policy))
	must(t, err)

	theirs, opened, err := torchwood.VerifyCheckpoint([]byte(n.String()), judge)
	must(t, err)

	if theirs.Origin != origin || theirs.N != 10 || directory.Hash(theirs.Hash) != n.Root || len(opened.Sigs) != 3 ||
		theirs.Extension != "" {
		t.Errorf("torchwood read %+v with %d signatures", theirs, len(opened.Sigs))
	}

	for _, s := range opened.Sigs[1:] {
		if at, err := torchwood.CosignatureTimestamp(s); err != nil || at != when.Unix() {
			t.Errorf("cosigned at %d, %v; want %d", at, err, when.Unix())
		}
	}
}

// Requirement: LOG-008
func TestWhatOthersSignIsRead(t *testing.T) {
	log, logKey, err := note.GenerateKey(nil, "log.example")
	must(t, err)

	signer, err := note.NewSigner(log)
	must(t, err)

	witness, err := torchwood.NewCosignatureSigner("witness.example/w", keyOf("w"))
	must(t, err)

	root := treeOf(t, 3).checkpoint(3).Root
	for _, extension := range []string{"", "more\nand more\n"} {
		text := torchwood.Checkpoint{Origin: "log.example", Tree: tlog.Tree{N: 3, Hash: tlog.Hash(root)},
			Extension: extension}.String()

		before := time.Now().Truncate(time.Second)

		signed, err := note.Sign(&note.Note{Text: text}, signer, witness)
		must(t, err)

		n := mustParse(t, string(signed))
		if n.Size != 3 || n.Root != root || n.Text != text || n.String() != string(signed) {
			t.Errorf("read %+v", n)
		}

		key, err := checkpoint.ParseVerifierKey(logKey)
		must(t, err)

		if !n.Signed("log.example", key.Key) {
			t.Error("the log's signature does not hold")
		}

		at, ok := cosigned(n, "witness.example/w", public("w"))
		if !ok || at.Before(before) || time.Since(at) > time.Minute {
			t.Errorf("cosigned %t at %s", ok, at)
		}

		if witness.Verifier().String() != vkey("witness.example/w", checkpoint.TypeWitness, "w").String() {
			t.Errorf("torchwood writes %s", witness.Verifier())
		}
	}
}

// The vector of C2SP signed-note.
func TestVerifierKeyOfTheSpecification(t *testing.T) {
	const vector = "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k"

	key, err := checkpoint.ParseVerifierKey(vector)
	if err != nil || key.Name != "example.com/foo" || key.ID() != 0x530d903a || key.String() != vector {
		t.Errorf("read %+v, %v", key, err)
	}

	for _, bad := range []string{
		"", "example.com/foo", "example.com/foo+530d903a",
		strings.Replace(vector, "530d903a", "530D903A", 1),                            // another encoding
		strings.Replace(vector, "530d903a", "530d903b", 1),                            // another id
		strings.Replace(vector, "/foo", "/fo o", 1),                                   // a space
		strings.Replace(vector, "+Ae", "+Be", 1),                                      // another type
		vector[:len(vector)-1] + "l",                                                  // spare bits
		vector + "=",                                                                  // padding
		vector[:len(vector)-4],                                                        // a short key
		"+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k",                      // no name
		strings.Replace(vector, "+Aeky", "+Aek\ny", 1),                                // what base64 skips
		vkeyOf("example.com/foo", 6, public("a")), vkeyOf("x", 2, public("a")[:16])} { // unknown types
		if key, err := checkpoint.ParseVerifierKey(bad); !errors.Is(err, checkpoint.ErrForm) {
			t.Errorf("%q was read as %+v, %v", bad, key, err)
		}
	}
}

func vkeyOf(name string, kind byte, key ed25519.PublicKey) string {
	return checkpoint.VerifierKey{Name: name, Type: kind, Key: key}.String()
}

func TestSignaturesBindOriginNameTextAndTime(t *testing.T) {
	n := cosignedNote(t, "w")

	if !n.Signed(origin, public("a")) {
		t.Error("not signed")
	}

	if at, ok := cosigned(n, "w", public("w")); !ok || !at.Equal(when) {
		t.Errorf("cosigned %t at %s", ok, at)
	}

	if n.Signed(origin, public("b")) || n.Signed("beta.test/roster/1", public("a")) || n.Signed(origin, nil) {
		t.Error("signed by another key, for another origin, or by none")
	}

	for _, name := range []string{"v", origin} {
		if _, ok := cosigned(n, name, public("w")); ok {
			t.Errorf("cosigned as %s", name)
		}
	}

	if _, ok := cosigned(n, "w", public("a")); ok {
		t.Error("cosigned by the log's key")
	}

	// A signature under the origin's name is not one of the log named there.
	foreign := mustParse(t, checkpoint.Sign(checkpoint.Checkpoint{Origin: "beta.test/roster/1", Size: 1}, keyOf("a")))
	foreign.Signatures[0].Name, foreign.Signatures[0].ID = origin, vkey(origin, checkpoint.TypeLog, "a").ID()

	if again := mustParse(t, foreign.String()); again.Signed(origin, public("a")) {
		t.Error("a note of another origin counts as signed for this one")
	}

	// Each bit of text and signatures matters, or the note is refused.
	text := n.String()
	for i := range len(text) {
		for bit := range 8 {
			changed := []byte(text)
			changed[i] ^= 1 << bit

			m, err := checkpoint.Parse(string(changed))
			if err != nil {
				continue
			}

			_, cosigned := cosigned(m, "w", public("w"))
			if m.Signed(origin, public("a")) && cosigned {
				t.Fatalf("bit %d of byte %d does not matter: %q", bit, i, changed)
			}
		}
	}
}

// A time of zero is no statement that the witness saw no larger tree.
func TestCosignatureWithoutTimeDoesNotCount(t *testing.T) {
	for _, at := range []time.Time{time.Unix(0, 0), time.Unix(1<<40, 0), time.Unix(-1, 0)} {
		n := cosignedNote(t)
		n = mustParse(t, n.String()+checkpoint.Cosign(n, "w", keyOf("w"), at))

		if got, ok := cosigned(n, "w", public("w")); ok {
			t.Errorf("a cosignature at %d counts, at %s", at.Unix(), got)
		}
	}
}

func TestNotesHaveOneForm(t *testing.T) {
	good := cosignedNote(t, "w").String()
	text, lines, _ := strings.Cut(good, "\n\n")
	first, second, _ := strings.Cut(lines, "\n")
	signature := base64.StdEncoding.EncodeToString(make([]byte, 68))

	var many strings.Builder
	for i := range checkpoint.MaxSignatures + 1 {
		fmt.Fprintf(&many, "— w%d %s\n", i, signature)
	}

	for name, bad := range map[string]string{
		"nothing":                  "",
		"no signatures":            text + "\n",
		"no lines":                 text + "\n\n",
		"no last newline":          strings.TrimSuffix(good, "\n"),
		"an empty line at the end": good + "\n",
		"a second line by the key": good + first + "\n",
		"a carriage return":        strings.Replace(good, "\n", "\r\n", 1),
		"a tab":                    strings.Replace(good, "alpha", "al\tpha", 1),
		"a zero before the size":   strings.Replace(good, "\n10\n", "\n010\n", 1),
		"a sign before the size":   strings.Replace(good, "\n10\n", "\n+10\n", 1),
		"a negative size":          strings.Replace(good, "\n10\n", "\n-1\n", 1),
		"a size of 2^63":           strings.Replace(good, "\n10\n", "\n9223372036854775808\n", 1),
		"no root":                  origin + "\n10\n\n" + lines,
		"a short root":             origin + "\n10\nAAAA\n\n" + lines,
		"no origin":                "\n10" + text[strings.LastIndex(text, "\n"):] + "\n\n" + lines,
		"two spaces":               text + "\n\n" + strings.Replace(first, " ", "  ", 1) + "\n",
		"another dash":             text + "\n\n" + strings.Replace(first, "—", "-", 1) + "\n",
		"a name with a plus":       text + "\n\n— a+b " + signature + "\n",
		"no name":                  text + "\n\n—  " + signature + "\n",
		"an id alone":              text + "\n\n— a AAAAAA==\n",
		"spare bits":               text + "\n\n— a AAAAAAB=\n",
		"base64url":                text + "\n\n— a AAAAAA-_\n",
		"no padding":               text + "\n\n— a AAAAAAA\n",
		"a word behind":            text + "\n\n" + first + " x\n",
		"text behind":              text + "\n\n" + first + "\n\n" + second,
		"broken UTF-8":             strings.Replace(good, "alpha", "al\xffpha", 1),
		"too many signatures":      text + "\n\n" + many.String(),
		"too long":                 text + "\n\n— a " + base64.StdEncoding.EncodeToString(make([]byte, 50<<10)) + "\n",
	} {
		if n, err := checkpoint.Parse(bad); !errors.Is(err, checkpoint.ErrForm) {
			t.Errorf("%s: read as %+v, %v", name, n, err)
		}
	}

	// 64 signatures, and lines of types that are unknown here, are no reason to refuse.
	most := strings.SplitAfter(many.String(), "\n")[:checkpoint.MaxSignatures]
	if n := mustParse(t, text+"\n\n"+strings.Join(most, "")); len(n.Signatures) != checkpoint.MaxSignatures {
		t.Errorf("read %d signatures", len(n.Signatures))
	}
}

func TestProofsAgreeWithTheTree(t *testing.T) {
	const most = 70

	tr := treeOf(t, most)
	for size := range most + 1 {
		c := tr.checkpoint(size)

		for old := range size + 1 {
			var path []directory.Hash
			if old > 0 {
				proof, err := tlog.ProveTree(int64(size), int64(old), tr)
				must(t, err)

				path = hashesOf(proof)
			}

			if err := c.Extends(tr.checkpoint(old), path); err != nil {
				t.Errorf("from %d to %d: %v", old, size, err)
			}

			other := tr.checkpoint(old)
			other.Root[0] ^= 1

			if err := c.Extends(other, path); !errors.Is(err, checkpoint.ErrProof) {
				t.Errorf("from another tree of %d to %d: %v", old, size, err)
			}

			longer := append(path, directory.Hash{})
			if err := c.Extends(tr.checkpoint(old), longer); !errors.Is(err, checkpoint.ErrProof) {
				t.Errorf("from %d to %d with a hash too many: %v", old, size, err)
			}
		}

		for i := range size {
			proof, err := tlog.ProveRecord(int64(size), int64(i), tr)
			must(t, err)

			path := hashesOf(proof)
			if err := c.Includes(entry(i), uint64(i), path); err != nil {
				t.Error(err)
			}

			for name, err := range map[string]error{
				"another entry":    c.Includes(entry(i+1), uint64(i), path),
				"another index":    c.Includes(entry(i), uint64((i+1)%most), path),
				"a hash too many":  c.Includes(entry(i), uint64(i), append(path, directory.Hash{})),
				"beyond the end":   c.Includes(entry(i), uint64(size), path),
				"beyond all trees": c.Includes(entry(i), 1<<63, path),
			} {
				if !errors.Is(err, checkpoint.ErrProof) && (size > 1 || name != "another index") {
					t.Errorf("index %d of %d, %s: %v", i, size, name, err)
				}
			}
		}
	}

	for name, err := range map[string]error{
		"backwards":       tr.checkpoint(3).Extends(tr.checkpoint(4), nil),
		"2^63":            checkpoint.Checkpoint{Size: 1 << 63}.Extends(tr.checkpoint(4), nil),
		"includes, 2^63":  checkpoint.Checkpoint{Size: 1 << 63}.Includes(entry(0), 0, nil),
		"too many hashes": tr.checkpoint(4).Extends(tr.checkpoint(3), make([]directory.Hash, 1000)),
	} {
		if !errors.Is(err, checkpoint.ErrProof) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Requirement: LOG-011
func TestTorchwoodVerifiesProofs(t *testing.T) {
	tr := treeOf(t, 10)
	n := cosignedNote(t, "w")

	policy := checkpoint.Policy{
		Logs: []checkpoint.PolicyLog{{Key: vkey(origin, checkpoint.TypeLog, "a"), URL: "https://alpha.test/log/1"}},
		Witnesses: []checkpoint.PolicyWitness{{Name: "beta", Key: vkey("w", checkpoint.TypeWitness, "w"),
			URL: "https://beta.test/witness"}},
		Groups: []checkpoint.PolicyGroup{{Name: "beta.test", Threshold: 1, Members: []string{"beta"}}},
		Quorum: "beta.test"}

	judge, err := torchwood.ParsePolicy([]byte(policy.Text()))
	must(t, err)

	proof, err := tlog.ProveRecord(10, 4, tr)
	must(t, err)

	for _, extra := range [][]byte{nil, []byte("more")} {
		text := checkpoint.FormatProof(checkpoint.Proof{Extra: extra, Index: 4, Path: hashesOf(proof),
			Checkpoint: n.String()})

		if err := torchwood.VerifyProof(judge, tlog.RecordHash(entry(4)), []byte(text)); err != nil {
			t.Error(err)
		}

		if err := torchwood.VerifyProof(judge, tlog.RecordHash(entry(5)), []byte(text)); err == nil {
			t.Error("torchwood takes another leaf")
		}

		parsed, err := checkpoint.ParseProof(text)
		must(t, err)

		if checkpoint.FormatProof(*parsed) != text || n.Includes(entry(4), parsed.Index, parsed.Path) != nil {
			t.Errorf("read as %+v", parsed)
		}
	}

	theirs := torchwood.FormatProofWithExtraData(4, []byte("x"), proof, []byte(n.String()))

	parsed, err := checkpoint.ParseProof(string(theirs))
	if err != nil || string(parsed.Extra) != "x" || n.Includes(entry(4), parsed.Index, parsed.Path) != nil {
		t.Errorf("torchwood's proof was read as %+v, %v", parsed, err)
	}
}

func TestProofsHaveOneForm(t *testing.T) {
	note := cosignedNote(t).String()
	hash := base64.StdEncoding.EncodeToString(make([]byte, 32)) + "\n"

	const mark = "c2sp.org/tlog-proof@v1\n"
	if _, err := checkpoint.ParseProof(mark + "index 0\n" + hash + "\n" + note); err != nil {
		t.Fatal(err)
	}

	for name, bad := range map[string]string{
		"nothing":           "",
		"another version":   "c2sp.org/tlog-proof@v2\nindex 0\n\n" + note,
		"no index":          mark + "\n" + note,
		"a negative index":  mark + "index -1\n\n" + note,
		"a leading zero":    mark + "index 01\n\n" + note,
		"no note":           mark + "index 0\n\n",
		"no empty line":     mark + "index 0\n",
		"a short hash":      mark + "index 0\nAAAA\n\n" + note,
		"extra, not base64": mark + "extra !\nindex 0\n\n" + note,
		"extra twice":       mark + "extra AA==\nextra AA==\nindex 0\n\n" + note,
		"spare bits":        mark + "extra AB==\nindex 0\n\n" + note,
		"too many hashes":   mark + "index 0\n" + strings.Repeat(hash, 64) + "\n" + note,
		"too long":          mark + "index 0\n\n" + note + strings.Repeat("x", 1<<20),
	} {
		if p, err := checkpoint.ParseProof(bad); !errors.Is(err, checkpoint.ErrForm) {
			t.Errorf("%s: read as %+v, %v", name, p, err)
		}
	}
}

var must = directorytest.Must
