package config

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/checkpoint"
	"github.com/roster-mesh/roster/directory/egress"
)

const (
	defaultWitnessEvery = 10 * time.Second
	maxWitnessEvery     = 24 * time.Hour
	maxOutside          = 64 // logs, and witnesses
	maxContact          = 200
)

// Witness configures which logs the domain cosigns besides those of its peers, and who cosigns its own.
type Witness struct {
	Every     time.Duration    `yaml:"every"`
	Quorum    int              `yaml:"quorum"`
	Logs      []OutsideLog     `yaml:"logs"`
	Witnesses []OutsideWitness `yaml:"witnesses"`
}

// An OutsideLog is a log of no peer that the domain cosigns.
type OutsideLog struct {
	VKey    string        `yaml:"vkey"`
	Every   time.Duration `yaml:"every"`
	Contact string        `yaml:"contact"`
}

// An OutsideWitness is a witness outside of the peers that cosigns the domain's ledger.
type OutsideWitness struct {
	VKey  string        `yaml:"vkey"`
	URL   string        `yaml:"url"`
	Every time.Duration `yaml:"every"`
}

func (w *Witness) validate(r *report) {
	r.pace("witness.every", w.Every)
	r.require(w.Quorum >= 0 && w.Quorum <= maxOutside, "witness.quorum", "must be from 0 to %d, got %d", maxOutside,
		w.Quorum)
	r.require(len(w.Logs) <= maxOutside, "witness.logs", "must be at most %d, got %d", maxOutside, len(w.Logs))
	r.require(len(w.Witnesses) <= maxOutside, "witness.witnesses", "must be at most %d, got %d", maxOutside,
		len(w.Witnesses))

	seen := map[string]bool{}
	for i, log := range w.Logs {
		key := fmt.Sprintf("witness.logs[%d]", i)
		r.vkey(key, log.VKey, checkpoint.TypeLog)
		r.require(!seen[log.VKey], key+".vkey", "%q occurs twice", log.VKey)
		r.require(len(log.Contact) <= maxContact && !strings.ContainsAny(log.Contact, "\r\n"), key+".contact",
			"must be one line of at most %d bytes", maxContact)

		seen[log.VKey] = true

		if log.Every != 0 {
			r.pace(key+".every", log.Every)
		}
	}

	clear(seen)

	for i, witness := range w.Witnesses {
		key := fmt.Sprintf("witness.witnesses[%d]", i)
		name := r.vkey(key, witness.VKey, checkpoint.TypeWitness)
		r.require(name == "" || !seen[name], key+".vkey", "the witness %q occurs twice", name)
		r.require(isWitnessURL(witness.URL), key+".url",
			"must be the https URL before /add-checkpoint, or an http URL on loopback, got %q",
			directory.HideUserinfo(witness.URL))

		seen[name] = true

		if witness.Every != 0 {
			r.pace(key+".every", witness.Every)
		}
	}
}

// pace checks a time between two checkpoints.
func (r *report) pace(key string, every time.Duration) {
	r.require(every >= time.Second && every <= maxWitnessEvery, key, "must be from 1s to %s, got %s", maxWitnessEvery,
		every)
}

// vkey checks a key of verifiers and returns its name.
func (r *report) vkey(key, text string, typ byte) string {
	parsed, err := checkpoint.ParseVerifierKey(text)
	if err != nil {
		r.check(key+".vkey", err)
		return ""
	}

	r.require(parsed.Type == typ, key+".vkey", "must be of type %#02x, got %#02x", typ, parsed.Type)

	return parsed.Name
}

// isWitnessURL reports whether a text is the prefix of a witness's routes.
func isWitnessURL(text string) bool {
	u, err := url.Parse(text)

	return err == nil && u.Hostname() != "" && u.User == nil && u.RawQuery == "" && u.Fragment == "" &&
		!strings.HasSuffix(text, "/") && isPortOrNone(u.Port()) &&
		(u.Scheme == "https" || u.Scheme == "http" && egress.IsLoopback(u.Host))
}
