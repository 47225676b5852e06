package api

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/api/operator"
	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
)

// quietCluster notes what it is told.
type quietCluster struct {
	told *[]string
	err  error
}

func (c quietCluster) tell(words ...string) error {
	if c.told != nil {
		*c.told = append(*c.told, strings.Join(words, " "))
	}

	return c.err
}

func (c quietCluster) Transfer(_ context.Context, to spiffeid.ID) error {
	return c.tell("transfer", to.String())
}
func (c quietCluster) Remove(_ context.Context, id spiffeid.ID) error {
	return c.tell("remove", id.String())
}
func (c quietCluster) Leave(context.Context) error { return c.tell("leave") }
func (c quietCluster) ConfirmClock(_ context.Context, step time.Duration) error {
	return c.tell("clock", step.String())
}
func (c quietCluster) AdmitStanding(context.Context, string, uint32) error { return nil }

func (c quietCluster) Admit(_ context.Context, id spiffeid.ID, withdraw bool) error {
	if withdraw {
		return c.tell("withdraw", id.String())
	}

	return c.tell("admit", id.String())
}

// quietBackups has a backup, which may tear.
type quietBackups struct {
	backup []byte
	torn   bool
	got    *[]byte
}

func (b quietBackups) Save(_ context.Context, w io.Writer) error {
	if b.backup == nil {
		return directory.Refuse(directory.Unavailable, "no majority")
	}

	if _, err := w.Write(b.backup); err != nil || !b.torn {
		return err
	}

	return errors.New("the disk is gone")
}

func (b quietBackups) Restore(
	_ context.Context, r io.Reader, options operator.RestoreOptions,
) (wire.Restored, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return wire.Restored{}, err
	}

	if b.got != nil {
		*b.got = data
	}

	if !options.NewEpoch || options.AcceptLossSince != "1.2" {
		refused := directory.Refuse(directory.Conflict, "the backup is at 1.2 and the domain at 1.3")
		refused.Violations = []directory.Violation{{Pointer: "/accept_loss_since", Detail: "lost"}}

		return wire.Restored{}, refused
	}

	return wire.Restored{Backup: "1.2", Before: "1.3", Now: "4.5" + options.Reason, Registrations: 7}, nil
}

func TestOperatorsChangeTheDomainsNodes(t *testing.T) {
	var told []string
	s := newTestServer(t, func(cfg *Config) { cfg.Cluster = quietCluster{told: &told} })
	c := newTestClient(t, s, "/ops/operator")

	id, ctx := "spiffe://alpha.test/roster/node/3", t.Context()
	for _, err := range []error{c.Operator().Transfer(ctx, ""), c.Operator().Transfer(ctx, id),
		c.Operator().RemoveMember(ctx, id), c.Operator().Admit(ctx, id, false), c.Operator().Admit(ctx, id, true),
		c.Operator().Leave(ctx), c.Operator().ConfirmClock(ctx, -time.Hour)} {
		if err != nil {
			t.Error(err)
		}
	}

	if want := []string{"transfer ", "transfer " + id, "remove " + id, "admit " + id, "withdraw " + id,
		"leave", "clock -1h0m0s"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}

	answer := ask(t, s, "/ops/operator", "POST", "/v1/operator/raft/transfer", "")
	wantStatus(t, answer, 204)

	// A change tells the position at which it is in force, to the client too, and a refusal none.
	index := directory.FormatIndex(alpha, s.Registry().Position())
	if got := answer.Header.Get("Roster-Index"); got != index {
		t.Errorf("a change is at %q, want %q", got, index)
	}

	var reply apiclient.Reply
	if err := c.Operator().Noting(&reply).Transfer(ctx, id); err != nil || reply.Index() != index {
		t.Errorf("a change is at %q to the client, want %q: %v", reply.Index(), index, err)
	}

	refused := ask(t, s, "/ops/operator", "POST", "/v1/operator/raft/remove", "")
	if got := refused.Header.Get("Roster-Index"); got != "" {
		t.Errorf("a refusal is at %q", got)
	}

	for _, body := range []string{"", "{}", `{"id":"node 3"}`, `{"id":3}`, `{"id":"a","id":"b"}`} {
		wantStatus(t, ask(t, s, "/ops/operator", "POST", "/v1/operator/raft/remove", body), 400)
	}

	told = nil // what is misspelt asks for another thing: to withdraw, to admit

	for verb, body := range map[string]string{"admit": `{"id":"` + id + `","withdrawn":true}`,
		"transfer": `{"to":"` + id + `"}`, "remove": `{"id":"` + id + `","force":true}`} {
		wantStatus(t, ask(t, s, "/ops/operator", "POST", "/v1/operator/raft/"+verb, body), 400)
	}

	if told != nil {
		t.Errorf("misspelt orders were obeyed: %q", told)
	}

	for _, verb := range []string{"transfer", "remove", "admit", "leave"} {
		wantStatus(t, ask(t, s, "/agent/ada", "POST", "/v1/operator/raft/"+verb, `{"id":"`+id+`"}`), 403)
		wantStatus(t, ask(t, s, "", "POST", "/v1/operator/raft/"+verb, `{"id":"`+id+`"}`), 401)
	}

	s = newTestServer(t, func(cfg *Config) {
		cfg.Cluster = quietCluster{err: directory.Refuse(directory.Conflict, "the last voter")}
	})
	if body := wantStatus(t, ask(t, s, "/ops/operator", "POST", "/v1/operator/raft/remove", `{"id":"`+id+`"}`),
		409); body["detail"] != "The last voter." {
		t.Errorf("refused with %v", body)
	}
}

// A hastyRegistry removes registrations although it doesn't know the present ones.
type hastyRegistry struct {
	cutOff
	removed *int
}

func (r hastyRegistry) Remove(context.Context, directory.RemoveRequest) (directory.Outcome, error) {
	*r.removed++

	return directory.Outcome{}, nil
}

// An operator who ends the registrations of an identity ends each one that it has made until then, or learns
// that this node can't tell.
func TestOwnedRegistrationsAreEndedByTheirPresentList(t *testing.T) {
	removed := 0
	s := newTestServer(t, func(cfg *Config) {
		cfg.Registry = hastyRegistry{removed: &removed}
	}, entry(t, alpha, rid(1), "one", 1, aDocument))

	wantStatus(t, ask(t, s, "/ops/operator", "POST", wire.OwnedPath+"/end",
		`{"owner":"spiffe://alpha.test/agent/ada"}`), 503)

	if removed > 0 {
		t.Errorf("%d registrations are removed without a majority", removed)
	}
}

// An operator moves a registration by the certificate of its connection, and by no token.
//
// Requirement: SEC-007
func TestATokenMovesNoRegistration(t *testing.T) {
	for token, want := range map[bool]int{true: 403, false: 503} { // the server has no leader
		s := newTestServer(t, func(cfg *Config) {
			identify := cfg.Identify
			cfg.Identify = func(r *http.Request) (request.Credential, error) {
				credential, err := identify(r)
				credential.Token = token

				return credential, err
			}
		}, entry(t, alpha, rid(1), "one", 1, aDocument))

		wantStatus(t, ask(t, s, "/ops/operator", "POST", "/ad/r/one/transfer",
			`{"owner":"spiffe://alpha.test/agent/bob","force":true}`), want)
	}
}

func TestBackupsCrossTheSurface(t *testing.T) {
	backup := bytes.Repeat([]byte("backup"), 100_000)

	var got []byte
	s := newTestServer(t, func(cfg *Config) { cfg.Backups = quietBackups{backup: backup, got: &got} })
	c := newTestClient(t, s, "/ops/operator")

	var file bytes.Buffer
	if err := c.Operator().SaveSnapshot(t.Context(), &file); err != nil || !bytes.Equal(file.Bytes(), backup) {
		t.Errorf("saved %d of %d bytes, %v", file.Len(), len(backup), err)
	}

	open := func() io.Reader { return bytes.NewReader(backup) }

	done, _, err := c.Operator().RestoreSnapshot(t.Context(), open, int64(len(backup)),
		apiclient.RestoreOptions{AcceptLossSince: "1.2", NewEpoch: true, Reason: "6"})
	if err != nil || *done != (wire.Restored{Backup: "1.2", Before: "1.3", Now: "4.56", Registrations: 7}) ||
		!bytes.Equal(got, backup) {
		t.Errorf("restored %+v of %d bytes, %v", done, len(got), err)
	}

	var refused *apiclient.Error

	_, _, err = c.Operator().RestoreSnapshot(t.Context(), open, int64(len(backup)), apiclient.RestoreOptions{})
	if !errors.As(err, &refused) || refused.Status != 409 ||
		!strings.Contains(refused.Detail, "1.2 and the domain at 1.3") || len(refused.Errors) != 1 ||
		refused.Errors[0].Pointer != "/accept_loss_since" {
		t.Errorf("what it costs is not accepted: %v", err)
	}

	wantStatus(t, ask(t, s, "/ops/operator", "POST", "/v1/operator/snapshot", "{}", "Content-Type",
		"application/json"), 415)
	wantStatus(t, ask(t, s, "/agent/ada", "GET", "/v1/operator/snapshot", ""), 403)
	wantStatus(t, ask(t, s, "/agent/ada", "POST", "/v1/operator/snapshot", ""), 403)

	var log bytes.Buffer
	none := newTestServer(t, func(cfg *Config) {
		cfg.Backups, cfg.Logger = quietBackups{}, slog.New(slog.NewTextHandler(&log, nil))
	})
	wantStatus(t, ask(t, none, "/ops/operator", "GET", "/v1/operator/snapshot", ""), 503)

	if strings.Contains(log.String(), "snapshot saved") {
		t.Errorf("what was not saved is logged as saved: %s", &log)
	}

	torn := newTestServer(t, func(cfg *Config) { cfg.Backups = quietBackups{backup: backup, torn: true} })
	if err := newTestClient(t, torn, "/ops/operator").Operator().SaveSnapshot(t.Context(), io.Discard); err == nil {
		t.Error("a backup that was cut off looks whole")
	}
}
