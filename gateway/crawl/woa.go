package crawl

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/kinds"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// MaxAgents bounds how many agents of one origin are taken, on all pages.
const MaxAgents = 10_000

// maxTransports bounds the transports of a document.
const maxTransports = 1000

// maxSplit bounds the size of all documents that are made from one document of that many
// bytes. The members shared by all agents are copied into each document, so a short one
// could make many long ones.
func maxSplit(bytes int) int { return 4*bytes + 1<<20 }

// An Agent is one agent of a Web of Agents document that was crawled.
type Agent struct {
	// Name is ID@HOST, the host being the origin's that serves the document: the same
	// id elsewhere is another agent (draft-gaikwad-woa, 4.1).
	Name string
	// Document is of this agent alone, with the transports that it names and a member
	// imported_from that says where it was; zero if Err is set.
	Document directory.Document
	Warnings []string // about skipped members
	Err      error    // why it is not accepted; nil if it is
}

// foreignMarks are members that another directory writes into its own document. They
// state how it obtained an agent, and do not describe the agent.
var foreignMarks = []string{"provenance", "projected", "kind", "redacted"}

// Split reads a Web of Agents document that was found at a URL. A fault of one agent
// does not exclude the others. The error is of the document as a whole, a
// *directory.Error (WOA-019, WOA-020).
func Split(at *url.URL, body []byte) ([]Agent, error) {
	members, err := directory.ParseObject(body)
	if err != nil {
		return nil, err
	}

	version, _ := strictjson.FindMember(members, "woa_version")
	agents, _ := strictjson.FindMember(members, "agents")
	transports, _ := strictjson.FindMember(members, "transports")

	switch {
	case string(version) != `"1"`:
		return nil, directory.Refuse(directory.BadDocument, "\"woa_version\" is %.40s; it is \"1\"",
			cmp.Or(string(version), "missing")).At("/woa_version")
	case agents == nil || transports == nil:
		return nil, directory.Refuse(directory.BadDocument, "\"agents\" and \"transports\" are both needed")
	case agents[0] != '[' || transports[0] != '{':
		return nil, directory.Refuse(directory.BadDocument,
			"\"agents\" is not an array, or \"transports\" not an object")
	case hasOver(agents, MaxAgents):
		return nil, directory.Refuse(directory.TooLarge, "it lists over %d agents", MaxAgents)
	case hasOver(transports, 2*maxTransports): // with their names
		return nil, directory.Refuse(directory.TooLarge, "it has over %d transports", maxTransports)
	}

	s := newSplitter(at, members, transports)
	listed := strictjson.SplitArray(agents)
	all := make([]Agent, len(listed))

	for n, raw := range listed {
		all[n] = s.agent(raw)

		// The bound holds before the next document is made.
		if s.made > maxSplit(len(body)) {
			return nil, directory.Refuse(directory.TooLarge,
				"the documents of its agents, with the parts common to all, have over %d bytes",
				maxSplit(len(body)))
		}

		if all[n].Name == "" {
			all[n].Name = fmt.Sprintf("agents/%d", n)
		}
	}

	return all, nil
}

// hasOver reports whether a valid array or object has more than that many values, names of members
// among them. It looks no further.
func hasOver(raw []byte, most int) bool {
	d := strictjson.Decoder(raw)
	defer strictjson.Release(d)

	if _, err := d.ReadToken(); err != nil {
		return false
	}

	for n := 0; d.PeekKind() != ']' && d.PeekKind() != '}'; n++ {
		if n == most {
			return true
		}

		if d.SkipValue() != nil {
			return false
		}
	}

	return false
}

// A splitter makes a document of each agent of one.
type splitter struct {
	at         *url.URL
	members    []strictjson.Member
	transports map[string]jsontext.Value
	base       string // of the transport rest
	shared     int    // bytes of the members that are copied into each document
	seen       map[string]bool
	made       int // bytes of documents
}

func newSplitter(at *url.URL, members []strictjson.Member, transports []byte) *splitter {
	s := &splitter{at: at, members: members, transports: map[string]jsontext.Value{}, seen: map[string]bool{}}
	for _, transport := range strictjson.SplitObject(transports) {
		s.transports[transport.Name] = transport.Value
	}

	s.base = baseOf(s.transports["rest"])

	for _, member := range members {
		if member.Name != "agents" && member.Name != "transports" {
			s.shared += len(member.Name) + len(member.Value)
		}
	}

	return s
}

// agent reads one agent.
func (s *splitter) agent(raw []byte) (a Agent) {
	members, err := directory.ParseObject(raw)
	if err != nil {
		return Agent{Err: err}
	}

	var agent struct {
		ID         string   `json:"id"`
		Transports []string `json:"transports"`
	}
	if err := json.Unmarshal(raw, &agent); err != nil || agent.ID == "" {
		return Agent{Err: directory.Refuse(directory.BadDocument,
			"the agent has no \"id\", or \"transports\" is not a list of names")}
	}

	a.Name = agent.ID + "@" + strings.TrimSuffix(strings.ToLower(s.at.Host), ":443")
	if s.seen[agent.ID] {
		a.Err = directory.Refuse(directory.BadDocument, "the document lists another agent with the id %.100q", agent.ID)
		return a
	}

	s.seen[agent.ID] = true

	if len(agent.Transports) > maxTransports {
		a.Err = directory.Refuse(directory.TooLarge, "the agent names over %d transports", maxTransports)
		return a
	}

	kept := s.named(&a, agent.Transports)
	for i := range members {
		if members[i].Name == "transports" {
			members[i].Value = strictjson.AppendStrings(nil, kept)
		}
	}

	members = slices.DeleteFunc(members, func(m strictjson.Member) bool {
		return slices.Contains(foreignMarks, m.Name)
	})

	a.Document, a.Err = s.document(a.Name, members, kept)

	return a
}

// named returns the transports of an agent that have a meaning: the draft's two, and
// private ones, which have reverse-DNS names (gaikwad 4.3.3; WOA-006). A transport that
// the document does not describe is left for the document's validation.
func (s *splitter) named(agent *Agent, names []string) (kept []string) {
	for _, name := range names {
		_, described := s.transports[name]
		switch {
		case described && name != "rest" && name != "mcp" && !strings.Contains(name, "."):
			agent.Warnings = append(agent.Warnings,
				fmt.Sprintf("the transport %.40q is neither registered nor private, and is passed over", name))

			continue
		case name == "rest" && strings.HasSuffix(s.base, "/"):
			agent.Warnings = append(agent.Warnings,
				"the base of its transport rest ends with a slash, which is left out")
		}

		kept = append(kept, name)
	}

	return kept
}

func baseOf(config []byte) string {
	var rest struct {
		Base string `json:"base"`
	}
	_ = json.Unmarshal(config, &rest) // an invalid config fails the document's validation

	return rest.Base
}

// document makes the document of one agent and judges it.
func (s *splitter) document(name string, agent []strictjson.Member, transports []string) (none directory.Document,
	err error) {
	one := strictjson.AppendObject([]byte{'['}, agent)
	size := s.shared + len(one)

	var configs []strictjson.Member
	for _, t := range transports {
		if config, ok := s.transports[t]; ok && !slices.ContainsFunc(configs, func(m strictjson.Member) bool {
			return m.Name == t
		}) {
			configs = append(configs, strictjson.Member{Name: t, Value: config})
			size += len(t) + len(config)
		}
	}

	// Before it is put together: another agent of the document may be as large.
	if size > directory.MaxDocument {
		return none, directory.Refuse(directory.TooLarge,
			"with the parts common to all, the agent's document has over %d bytes", directory.MaxDocument)
	}

	s.made += size

	if slices.Contains(transports, "rest") && strings.HasPrefix(s.base, "http:") {
		return none, directory.Refuse(directory.BadDocument,
			"its base is %.200q; plain HTTP is not used (gaikwad 8.1)", s.base).At("/transports/rest/base")
	}

	var out []strictjson.Member
	for _, member := range s.members {
		switch member.Name {
		case "agents":
			member.Value = append(one, ']')
		case "transports":
			member.Value = strictjson.AppendObject(nil, configs)
		case directory.ImportedFrom:
			continue
		}

		out = append(out, member)
	}

	if err := objection(out); err != nil {
		return none, err
	}

	sum := sha256.Sum256(strictjson.AppendObject(nil, out))
	from := strictjson.AppendText([]byte{'{'}, "source", s.at.String())
	from = append(strictjson.AppendText(from, "sha256", hex.EncodeToString(sum[:])), '}')

	doc, err := directory.ParseDocument(directory.KindWoA,
		strictjson.AppendObject(nil, append(out, strictjson.Member{Name: directory.ImportedFrom, Value: from})))
	if err != nil {
		return none, err
	}

	if _, err := directory.ParseName(name); err != nil {
		return none, err
	}

	if _, err := kinds.Project(name, doc); err != nil {
		return none, err
	}

	return doc, nil
}

// secrets are names of members whose values grant access, in lower case and without -
// and _.
var secrets = []string{
	"password", "passwd", "passphrase", "secret", "clientsecret", "sharedsecret", "token", "accesstoken",
	"refreshtoken", "idtoken",
	"bearertoken", "authtoken", "apikey", "apitoken", "privatekey", "secretkey", "secretaccesskey", "credential",
	"credentials", "authorization", "cookie",
}

// secretText matches the text of a credential, in a member of any name.
var secretText = regexp.MustCompile(`^(Bearer|Basic) +[A-Za-z0-9+/=._~-]{8,` +
	`}$|^eyJ[A-Za-z0-9_-]+\.eyJ[A-Za-z0-9_-]+\.|-----BEGIN [A-Z ]*PRIVATE KEY-----`)

// objection returns the reason to refuse a crawled document. It finds text that looks
// like a credential (gaikwad 6; WOA-031), except in the contents of JSON Schemas. In a
// schema it finds a reference to another document, which would never be fetched
// (WOA-023). A registrant's own document is not checked, because the registrant knows
// its contents and decides on its visibility. A transport without a meaning in such a
// document is skipped silently (WOA-006).
func objection(members []strictjson.Member) error {
	d := jsontext.NewDecoder(bytes.NewReader(strictjson.AppendObject(nil, members)))

	schema := 0 // the depth of the object that has the schema which is being read; 0 for none
	for {
		token, err := d.ReadToken()
		if err != nil {
			return nil // the end, or a document that is refused for itself
		}

		name := d.StackPointer().LastToken()
		kind, n := d.StackIndex(d.StackDepth())

		// Names and values alternate in an object. Behind a name, n is odd.
		isName := kind == '{' && n%2 == 1
		switch {
		case schema == 0 && isName && (name == "inputs" || name == "outputs") && d.PeekKind() == '{':
			schema = d.StackDepth()
		case isName || token.Kind() != '"':
			if schema == d.StackDepth() {
				schema = 0 // that was its end
			}
		case schema > 0 && name == "$ref" && !strings.HasPrefix(token.String(), "#"):
			return directory.Refuse(directory.BadDocument, "\"$ref\" is %.200q: a reference is within its schema",
				token.String()).At(string(d.StackPointer()))
		case schema == 0 && (secret(name) && token.String() != "" || secretText.MatchString(token.String())):
			return directory.Refuse(directory.BadDocument,
				"it holds what looks like a credential, which no document is to have and which is not stored").
				At(string(d.StackPointer()))
		}
	}
}

func secret(name string) bool {
	return slices.Contains(secrets, strings.TrimPrefix(strings.NewReplacer("-", "", "_", "").
		Replace(strings.ToLower(name)), "x"))
}
