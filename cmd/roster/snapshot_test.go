package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/node/dev"
)

// ageHeader begins an encrypted backup.
const ageHeader = "age-encryption.org/v1\n"

// newDomain runs a domain of one node. Its operator runs the commands; as changes the caller.
func newDomain(t *testing.T) (w *world, mesh *dev.Mesh) {
	t.Helper()
	dir := t.TempDir()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- dev.Run(ctx, dev.Options{Domains: 1, Nodes: 1, Dir: dir, Out: io.Discard, Program: "roster"})
	}()
	t.Cleanup(func() {
		stop()

		if err := <-ended; err != nil {
			t.Error(err)
		}
	})

	deadline := time.After(scriptWait)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()

	for mesh == nil {
		select {
		case err := <-ended:
			ended <- nil
			t.Fatalf("the domain ended: %v", err)
		case <-deadline:
			t.Fatal("the domain is not ready in time")
		case <-tick.C:
			if m, err := dev.ReadMesh(dir); err == nil && m.Ready {
				mesh = m
			}
		}
	}

	alpha := mesh.Domains[0]
	env := map[string]string{"ROSTER_ADDRESS": alpha.Nodes[0].API, "ROSTER_BUNDLE": alpha.Bundle,
		"ROSTER_DOMAIN": alpha.TrustDomain}
	w = &world{t: t, dir: t.TempDir(), env: env}
	w.as(mesh, "/ops/operator")

	return w, mesh
}

// as runs further commands as one of a development mesh's identities.
func (w *world) as(mesh *dev.Mesh, path string) {
	w.t.Helper()

	i := slices.IndexFunc(mesh.Domains[0].Identities, func(id dev.Identity) bool {
		return id.SPIFFEID == "spiffe://alpha.test"+path
	})
	if i < 0 {
		w.t.Fatalf("no identity %s", path)
	}

	w.env["ROSTER_CERT"] = mesh.Domains[0].Identities[i].Cert
	w.env["ROSTER_KEY"] = mesh.Domains[0].Identities[i].Key
}

// must runs a command line that must succeed, and returns its output.
func (w *world) must(args ...string) string {
	w.t.Helper()

	code, out, errs := w.run(args...)
	if code != 0 {
		w.t.Fatalf("%q: exit code %d: %s%s", args, code, out, errs)
	}

	return out
}

// registerLarge registers documents that don't compress, so that a backup has several
// of the chunks by which age authenticates a file.
func (w *world) registerLarge(mesh *dev.Mesh) {
	w.t.Helper()
	w.as(mesh, "/agent/ada")
	defer w.as(mesh, "/ops/operator")

	for i := range 5 {
		noise := make([]byte, 24<<10)
		_, _ = rand.Read(noise)
		document := fmt.Sprintf(`{"base":"https://agent.example","noise":%q}`, hex.EncodeToString(noise))
		w.must("register", fmt.Sprintf("large%d", i), w.file("document.json", document))
	}
}

// epoch returns the domain's epoch, which every restore raises.
func (w *world) epoch() uint64 {
	w.t.Helper()
	path := filepath.Join(w.t.TempDir(), "now.backup")
	w.must("snapshot", "save", path, "--plaintext")

	var info struct{ Epoch uint64 }
	must(w.t, json.Unmarshal([]byte(w.must("snapshot", "inspect", path, "-o", "json")), &info))

	return info.Epoch
}

// newIdentity makes an age identity in a file.
func (w *world) newIdentity(name string) (file, recipient string, identity *age.X25519Identity) {
	w.t.Helper()
	identity, err := age.GenerateX25519Identity()
	must(w.t, err)

	return w.file(name, "# a comment\n"+identity.String()+"\n"), identity.Recipient().String(), identity
}

// client returns the client of one run of the program.
func (w *world) client() (*apiclient.Client, error) {
	p := w.program(io.Discard, io.Discard)
	p.root() // adds the connection's flags

	return p.session.Client()
}

// masterSalts finds the master salts in an unencrypted backup: the 32 bytes from which the
// public salts of disclosures are derived.
func masterSalts(t *testing.T, plain []byte, disclosures []string) (salts [][]byte) {
	t.Helper()

	for _, text := range disclosures {
		raw, err := directory.B64.DecodeString(text)
		must(t, err)

		var parts []any
		must(t, json.Unmarshal(raw, &parts))
		salt, err := directory.B64.DecodeString(parts[0].(string))
		must(t, err)

		if parts[1] != "agent" {
			continue
		}

		for i := range len(plain) - sha256.Size {
			mac := hmac.New(sha256.New, plain[i:i+sha256.Size])
			mac.Write([]byte("adrec1\x00reg\x00agent"))

			if bytes.Equal(mac.Sum(nil)[:len(salt)], salt) {
				salts = append(salts, plain[i:i+sha256.Size])
				break
			}
		}
	}

	return salts
}

// A saved backup is encrypted: it contains neither a salt nor the name of an agent, and the
// age library and command decrypt it.
//
// Requirement: FORM-011
func TestASavedBackupIsEncrypted(t *testing.T) {
	w, mesh := newDomain(t)
	w.as(mesh, "/agent/ada")
	w.must("register", "canary", w.file("document.json", `{"base":"https://canary.example"}`))
	w.as(mesh, "/ops/operator")
	client, err := w.client()
	must(t, err)
	reply, err := client.Record(t.Context(), "canary")
	must(t, err)
	record, err := signed.ParseRecord(strings.TrimSpace(string(reply.Body)))
	must(t, err)

	identityFile, recipient, identity := w.newIdentity("operator.key")
	second, secondRecipient, _ := w.newIdentity("second.key")
	list := w.file("recipients.txt", "# operators\n"+secondRecipient+"\n")
	sealed := filepath.Join(w.dir, "sealed.backup")
	inClear := filepath.Join(w.dir, "clear.backup")
	w.must("snapshot", "save", sealed, "--recipient", recipient, "--recipient", "@"+list)
	w.must("snapshot", "save", inClear, "--plaintext")
	file, err := os.ReadFile(sealed)
	must(t, err)
	plain, err := os.ReadFile(inClear)
	must(t, err)

	if info, err := os.Stat(sealed); err != nil || info.Mode().Perm() != 0o600 ||
		!bytes.HasPrefix(file, []byte(ageHeader)) {
		t.Errorf("the file is %v, %v, and begins with %.30q", info.Mode(), err, file)
	}

	salts := masterSalts(t, plain, record.Disclosures)
	if len(salts) == 0 {
		t.Fatal("the test finds no master salt in a backup in clear")
	}

	for _, canary := range append(salts, []byte("canary"), []byte("spiffe://")) {
		if !bytes.Contains(plain, canary) {
			t.Errorf("the test finds no %q in a backup in clear", canary)
		}

		if bytes.Contains(file, canary) {
			t.Errorf("%q is in the encrypted backup", canary)
		}
	}

	// The library alone, without any code of this program.
	reader, err := age.Decrypt(bytes.NewReader(file), identity)
	must(t, err)
	opened, err := io.ReadAll(reader)
	must(t, err)

	if !bytes.Contains(opened, salts[0]) {
		t.Error("what age opens is another backup")
	}

	t.Run("the age command opens it", func(t *testing.T) {
		program, err := exec.LookPath("age")
		if err != nil {
			t.Skip("age is not installed")
		}

		for _, key := range []string{identityFile, second} {
			out, err := exec.CommandContext(t.Context(), program, "--decrypt", "-i", key, sealed).Output()
			if err != nil || !bytes.Equal(out, opened) {
				t.Errorf("%s: %d bytes, %v", key, len(out), err)
			}
		}
	})

	for _, key := range []string{identityFile, second} {
		if out := w.must("snapshot", "inspect", sealed, "--identity", key); !strings.Contains(out,
			"encrypted\tyes\n") ||
			!strings.Contains(out, "registrations\t1\n") {
			t.Errorf("inspect prints\n%s", out)
		}
	}

	if out := w.must("snapshot", "inspect", inClear); !strings.Contains(out, "encrypted\tno\n") {
		t.Errorf("inspect prints\n%s", out)
	}

	for _, args := range [][]string{
		{sealed, "--identity", identityFile}, {inClear}, {inClear, "--identity", identityFile},
	} {
		before := w.epoch()
		w.must(append([]string{"snapshot", "restore", "--new-epoch"}, args...)...)

		if now := w.epoch(); now <= before {
			t.Errorf("restore %q: epoch %d, before %d", args, now, before)
		}
	}
}

// Without --recipient or --plaintext, and after any mistake in them, there is no file.
//
// Requirement: FORM-011
func TestASaveNeedsARecipientOrPlaintext(t *testing.T) {
	w := newWorld(t, says(`{}`))

	_, recipient, identity := w.newIdentity("key")
	for name, args := range map[string][]string{
		"neither":                      {},
		"both":                         {"--plaintext", "--recipient", recipient},
		"no key":                       {"--recipient", "age1nobody"},
		"an empty one":                 {"--recipient", ""},
		"a private key":                {"--recipient", identity.String()},
		"a file with the private one":  {"--recipient", "@" + w.env["ROSTER_KEY"]},
		"a file without any":           {"--recipient", "@" + w.file("empty", "# nobody\n")},
		"an ssh key, which age1 isn't": {"--recipient", "ssh-ed25519 AAAA"},
	} {
		for _, verb := range [][]string{{"save"}, {"salvage", "--config", w.file("node.yaml", "{}")}} {
			path := filepath.Join(w.dir, "x.backup")
			args := append(append([]string{"snapshot"}, verb...), append(args, path)...)

			code, out, errs := w.run(args...)
			if code != 2 {
				t.Errorf("%s, %s: exit code %d: %s%s", verb[0], name, code, out, errs)
			}

			what, _, _ := strings.Cut(errs, "\n")
			if strings.Contains(what, "AGE-SECRET-KEY") {
				t.Errorf("%s: a private key is printed: %s", name, what)
			}

			if left, _ := filepath.Glob(path + "*"); len(left) > 0 {
				t.Errorf("%s: left behind: %q", name, left)
			}
		}
	}

	missing := "@" + filepath.Join(w.dir, "none")
	if code, _, _ := w.run("snapshot", "save", filepath.Join(w.dir, "x.backup"), "--recipient", missing); code != 1 {
		t.Errorf("a file that is not there: exit code %d", code)
	}
}

// Nothing of an encrypted backup is shown or restored if it is damaged, or encrypted to
// another identity.
//
// Requirement: FORM-011
func TestADamagedEncryptedBackupChangesNothing(t *testing.T) {
	w, mesh := newDomain(t)
	w.registerLarge(mesh)
	identityFile, recipient, _ := w.newIdentity("operator.key")
	stranger, _, _ := w.newIdentity("stranger.key")
	sealed := filepath.Join(w.dir, "sealed.backup")
	w.must("snapshot", "save", sealed, "--recipient", recipient)
	file, err := os.ReadFile(sealed)
	must(t, err)

	const chunk = 64 << 10
	if len(file) < 3*chunk {
		t.Fatalf("the backup has %d bytes, fewer than three chunks", len(file))
	}

	before := w.epoch()

	refuse := func(name, path, key string, codes ...int) {
		t.Helper()

		for _, verb := range [][]string{{"inspect"}, {"restore", "--new-epoch"}} {
			args := append(append([]string{"snapshot"}, verb...), path)
			if key != "" {
				args = append(args, "--identity", key)
			}

			code, out, errs := w.run(args...)
			if !slices.Contains(codes, code) || out != "" || errs == "" {
				t.Errorf("%s, %s: exit code %d: %s%s", name, verb[0], code, out, errs)
			}
		}
	}
	refuse("no identity", sealed, "", 2)
	refuse("another identity", sealed, stranger, 12)
	refuse("an identity that is none", sealed, w.env["ROSTER_KEY"], 12)
	refuse("an identity that is not there", sealed, filepath.Join(w.dir, "none"), 1)

	damaged := filepath.Join(w.dir, "damaged.backup")
	header := bytes.Index(file, []byte("\n---"))

	flips := []int{len(ageHeader) + 3, header - 2, header + 6, header + 60, chunk, 2 * chunk, 2*chunk + 1000,
		len(file) - 1}
	for i := 7; i < len(file); i += len(file) / 40 {
		flips = append(flips, i)
	}

	for _, i := range flips {
		mutant := bytes.Clone(file)
		mutant[i] ^= 1
		must(t, os.WriteFile(damaged, mutant, 0o600))
		refuse(fmt.Sprintf("byte %d of %d flipped", i, len(file)), damaged, identityFile, 10, 12)
	}

	for _, size := range []int{
		len(ageHeader), header, header + 40, header + 70, chunk, 2 * chunk, len(file) - chunk, len(file) - 16,
		len(file) - 1,
	} {
		must(t, os.WriteFile(damaged, file[:size], 0o600))
		refuse(fmt.Sprintf("cut to %d", size), damaged, identityFile, 10, 12)
	}

	must(t, os.WriteFile(damaged, append(bytes.Clone(file), 0), 0o600))
	refuse("one byte more", damaged, identityFile, 10)

	// Nothing is sent before the whole file is authenticated, including its last chunk.
	sent := 0

	startOrigin := newWorld(t, func(http.ResponseWriter, *http.Request) { sent++ })
	for _, i := range []int{chunk, len(file) - 1000, len(file) - 1} {
		mutant := bytes.Clone(file)
		mutant[i] ^= 1
		must(t, os.WriteFile(damaged, mutant, 0o600))

		code, _, errs := startOrigin.run("snapshot", "restore", "--new-epoch", damaged, "--identity", identityFile)
		if code != 10 || sent > 0 {
			t.Errorf("byte %d flipped: exit code %d after %d requests: %s", i, code, sent, errs)
		}
	}

	// A valid age file of other contents is not a backup.
	var other bytes.Buffer
	parsed, err := age.ParseX25519Recipient(recipient)
	must(t, err)
	out, err := age.Encrypt(&other, parsed)
	must(t, err)
	_, err = out.Write(bytes.Repeat([]byte("not a backup "), 100))
	must(t, errors.Join(err, out.Close()))
	must(t, os.WriteFile(damaged, other.Bytes(), 0o600))
	refuse("another file", damaged, identityFile, 10)

	if now := w.epoch(); now != before {
		t.Errorf("the domain was restored: epoch %d, before %d", now, before)
	}
}

// If a file changes after its inspection, sending it fails, and the directory applies
// nothing of an incomplete backup.
//
// Requirement: FORM-011
func TestABackupThatChangesWhileItIsSentChangesNothing(t *testing.T) {
	w, mesh := newDomain(t)
	w.registerLarge(mesh)
	identityFile, recipient, _ := w.newIdentity("operator.key")
	sealed := filepath.Join(w.dir, "sealed.backup")
	w.must("snapshot", "save", sealed, "--recipient", recipient)
	before := w.epoch()

	// The client is made after the inspection of the file.
	var out, errs bytes.Buffer
	p := w.program(&out, &errs)
	p.session.Dial = func() (*apiclient.Client, error) {
		file, err := os.OpenFile(sealed, os.O_RDWR, 0)
		must(t, err)
		_, err = file.WriteAt([]byte("changed"), 100<<10)
		must(t, errors.Join(err, file.Close()))

		return w.client()
	}

	code := p.run(t.Context(), []string{"snapshot", "restore", sealed, "--identity", identityFile, "--new-epoch"})
	if code != 10 || !strings.Contains(errs.String(), "truncated or damaged") {
		t.Errorf("it was sent: exit code %d: %s%s", code, out.String(), errs.String())
	}

	if now := w.epoch(); now != before {
		t.Errorf("the domain was restored: epoch %d, before %d", now, before)
	}
}

// keygen makes a key that only its owner reads, prints the public part, and replaces no file.
func TestKeygenMakesABackupKey(t *testing.T) {
	w := newWorld(t, nil)
	file := filepath.Join(w.dir, "backup.key")

	code, out, errs := w.run("snapshot", "keygen", file)
	if code != 0 || !strings.HasPrefix(out, "age1") || !strings.Contains(errs, file) {
		t.Fatalf("exit code %d, %q, %q", code, out, errs)
	}

	text, err := os.ReadFile(file)
	must(t, err)

	identities, err := age.ParseIdentities(strings.NewReader(string(text)))
	must(t, err)

	if got := identities[0].(*age.X25519Identity).Recipient().String() + "\n"; got != out {
		t.Errorf("the file is the key of %q, printed is %q", got, out)
	}

	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}

	code, out, errs = w.run("snapshot", "keygen", file)
	if code != 5 || out != "" || !strings.Contains(errs, "exists") {
		t.Errorf("again: exit code %d, %q, %q", code, out, errs)
	}

	if again, err := os.ReadFile(file); err != nil || string(again) != string(text) {
		t.Errorf("the key was replaced: %v", err)
	}
}
