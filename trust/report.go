package trust

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
)

// A Report lists the steps of Verify, and the facts that they show.
type Report struct {
	Steps   []Step  `json:"steps"`
	Subject Subject `json:"subject"`
	// Anchor is the basis of the verdict; AnchorNone until one was found.
	Anchor Anchor `json:"anchor"`
	// Directory is the trust data of the directory that is the anchor.
	Directory *DirectoryWord `json:"directory,omitempty"`
	// Verdict is the result in one sentence.
	Verdict string `json:"verdict"`
	// Authentic is whether the origin's signatures were checked by the anchor and
	// all steps hold. Without an anchor it is false.
	Authentic bool `json:"authentic"`
	// Logged is whether the ledger holds the record, and Log where; Witnessed whether the
	// quorum of the verifier's policy cosigned that, and Witnesses are those that did.
	Logged    bool      `json:"logged"`
	Log       *LogEntry `json:"log,omitempty"`
	Witnessed bool      `json:"witnessed"`
	Witnesses []Witness `json:"witnesses,omitempty"`
	// Unchecked names the parts of the file that can be changed without another
	// verdict, such as UncheckedBundle.
	Unchecked []string `json:"unchecked"`
	// Document has the disclosed members of the registration, as JSON; empty if none was read.
	Document []byte `json:"-"`
	// Signed is whether the origin's signatures were checked by the anchor and hold, also if
	// the record has expired.
	Signed bool `json:"-"`
}

// A LogEntry is a place in a domain's ledger.
type LogEntry struct {
	Origin string `json:"origin"` // of the ledger
	Index  uint64 `json:"index"`
	Size   uint64 `json:"size"` // leaves of the checkpoint that shows it
}

// A Witness is a witness of the verifier's policy that cosigned a checkpoint.
type Witness struct {
	Name string    `json:"name"` // of its key
	At   time.Time `json:"at"`
}

// A Step is one thing that Verify looked at. After the step that fails all are
// skipped.
type Step struct {
	Name    string `json:"name"`
	Detail  string `json:"detail"`
	OK      bool   `json:"ok"`
	Skipped bool   `json:"skipped,omitempty"`
}

// A Subject describes the contents of a record, as far as they were read.
type Subject struct {
	Domain string `json:"domain,omitempty"`
	RID    string `json:"rid,omitempty"`
	Agent  string `json:"agent,omitempty"`
	Kind   string `json:"kind,omitempty"`
	Owner  string `json:"owner,omitempty"` // empty if it is withheld, as the members up to ImportedFrom

	Registrant string `json:"registrant,omitempty"` // authenticated when the contents were registered
	// RegistrantState is verified if all these identities are of the domain that signed, which
	// authenticates them, and claimed otherwise.
	RegistrantState directory.RegistrantState `json:"registrant_state,omitempty"`

	RegisteredBy  string `json:"registered_by,omitempty"`
	TransferredBy string `json:"transferred_by,omitempty"`
	ImportedFrom  string `json:"imported_from,omitempty"`

	Epoch      uint64    `json:"epoch,omitempty"`
	Revision   uint64    `json:"revision,omitempty"`  // of the statement
	Registered time.Time `json:"registered,omitzero"` // when the agent was first registered
	Issued     time.Time `json:"issued,omitzero"`     // the statement
	Checked    time.Time `json:"checked,omitzero"`    // when the origin last said so
	Deadline   time.Time `json:"deadline,omitzero"`
	// BroughtBy is the member of the domain that brought the change to the leader, by the domain's word.
	BroughtBy string `json:"brought_by,omitempty"`
	Redacted  bool   `json:"redacted,omitempty"`
	Key       string `json:"key,omitempty"` // kid of the page's signature
	Node      string `json:"node,omitempty"`
}

// subjectOf returns the subject of a record.
func subjectOf(contents *signed.Contents) Subject {
	subject := Subject{
		Domain: contents.Issuer.Name(), RID: contents.RID.String(), Agent: contents.Agent,
		Kind:  string(contents.Document.Kind()),
		Epoch: contents.Epoch, Revision: contents.Revision,
		Issued: time.Unix(contents.IssuedAt, 0).UTC(), Redacted: contents.Redacted,
	}
	if member := contents.BroughtBy(); !member.IsZero() {
		subject.BroughtBy = member.String()
	}

	if contents.Since > 0 {
		subject.Registered = time.Unix(contents.Since, 0).UTC()
	}

	// The provenance is withheld together with the owner.
	if contents.Owner.IsZero() {
		return subject
	}

	provenance := &contents.Provenance
	subject.Owner = contents.Owner.String()
	subject.Registrant = cmp.Or(provenance.Registrant, contents.Owner).String()
	subject.RegistrantState = provenance.State(contents.Owner, contents.Issuer)
	subject.RegisteredBy = provenance.RegisteredBy.String()
	subject.TransferredBy = provenance.TransferredBy.String()
	subject.ImportedFrom = provenance.ImportedFrom

	return subject
}

// registration returns who registered the contents, for whom and through which member, as the end of a
// sentence, as far as the record shows it.
func (s *Subject) registration() (text string) {
	if s.BroughtBy != "" {
		text = "; brought by " + s.BroughtBy
	}

	if s.Owner == "" {
		return text
	}

	text += "; registrant " + s.Registrant + " (" + string(s.RegistrantState) + ")"
	add := func(what, value string) {
		if value != "" && value != s.Registrant {
			text += ", " + what + " " + value
		}
	}
	add("owner", s.Owner)
	add("transferred by", s.TransferredBy)
	add("imported from", s.ImportedFrom)

	return text
}

// verdict returns the result of a verification that failed for err, or for nothing, in one
// sentence.
func (v *verification) verdict(err error) string {
	subject := &v.report.Subject

	switch {
	case errors.Is(err, ErrEquivocation):
		return "evidence valid: " + v.trial.found.What
	case errors.Is(err, ErrExpired) && v.report.Signed:
		// The deadline is judged after the signatures, which hold in spite of it.
		return "authentic, expired since " + subject.Deadline.Format(time.RFC3339)
	case errors.Is(err, ErrWitness):
		return "signed, and not verified: " + err.Error()
	case errors.Is(err, ErrNoAnchor):
		return "not verified: " + err.Error()
	case err != nil:
		return "not authentic: " + err.Error()
	case v.contents.Op == signed.OpEnd:
		return fmt.Sprintf("authentic: %s ended registration %s", subject.Domain, subject.RID)
	case v.bare:
		return fmt.Sprintf("authentic: %s registered %q; whether it is in force is not shown", subject.Domain,
			subject.Agent)
	}

	return fmt.Sprintf("authentic: %s vouches for %q until %s", subject.Domain, subject.Agent,
		subject.Deadline.Format(time.RFC3339))
}

// A StepError says at which step of Verify a proof failed, and wraps why: an
// error of this package or of directory that ExitCode knows.
type StepError struct {
	Step string
	Err  error
}

func (e *StepError) Error() string { return e.Step + ": " + e.Err.Error() }
func (e *StepError) Unwrap() error { return e.Err }

// String returns the report as plain lines, one for each step.
func (r *Report) String() string {
	var out strings.Builder
	for _, step := range r.Steps {
		word := "ok"
		switch {
		case step.Skipped:
			word = "-"
		case !step.OK:
			word = "FAILED"
		}

		fmt.Fprintf(&out, "%-6s  %-16s  %s\n", word, step.Name, step.Detail)
	}

	return out.String()
}
