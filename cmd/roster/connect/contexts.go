package connect

import (
	"cmp"
	"errors"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/directory/durable"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// A Profile is the contents of one context: the values of the connection's flags.
type Profile struct {
	Address     string `json:"address"`
	Domain      string `json:"domain,omitzero"`
	Bundle      string `json:"bundle,omitzero"`
	Cert        string `json:"cert,omitzero"`
	Key         string `json:"key,omitzero"`
	WorkloadAPI string `json:"workload_api,omitzero"`
	WIT         string `json:"wit,omitzero"`
	WITKey      string `json:"wit_key,omitzero"`
	Token       string `json:"token_file,omitzero"`
}

// hasAddresses reports whether all addresses of a list are the profile's, too.
func (p *Profile) hasAddresses(list string) bool {
	own := splitAddresses(p.Address)

	return !slices.ContainsFunc(splitAddresses(list), func(address string) bool {
		return !slices.Contains(own, address)
	})
}

func splitAddresses(list string) []string {
	addresses := strings.Split(list, ",")
	for i, address := range addresses {
		addresses[i] = strings.TrimSuffix(strings.TrimSpace(address), "/")
	}

	return addresses
}

// field returns the value of one of the connection's flags; nil for --context.
func (p *Profile) field(flag string) *string {
	switch flag {
	case flagAddress:
		return &p.Address
	case flagDomain:
		return &p.Domain
	case flagBundle:
		return &p.Bundle
	case flagCert:
		return &p.Cert
	case flagKey:
		return &p.Key
	case flagWorkloadAPI:
		return &p.WorkloadAPI
	case flagWIT:
		return &p.WIT
	case flagWITKey:
		return &p.WITKey
	case flagTokenFile:
		return &p.Token
	}

	return nil
}

// contextsVersion is the version of the file. Releases add members, which others keep and ignore.
const contextsVersion = 1

// contexts are the contents of the file with all contexts.
type contexts struct {
	Current string
	All     map[string]Profile // a broken one is empty

	version int
	rest    jsontext.Value            // members that this release doesn't know
	saved   map[string]savedContext   // as they were read
	broken  map[string]error          // contexts that can't be read
	raw     map[string]jsontext.Value // the broken contexts' texts
}

// A contextsFile is the file with all contexts.
type contextsFile struct {
	Version  int                       `json:"version"`
	Current  string                    `json:"current"`
	Contexts map[string]jsontext.Value `json:"contexts"`
	Rest     jsontext.Value            `json:",embed"`
}

// A savedContext is a context in the file.
type savedContext struct {
	Profile
	Rest jsontext.Value `json:",embed"`
}

// parseContexts reads the text of the file.
func parseContexts(text []byte) (contexts, error) {
	var file contextsFile
	if err := strictjson.Unmarshal(text, &file); err != nil {
		return contexts{}, err
	}

	parsed := contexts{
		Current: file.Current, All: map[string]Profile{}, version: file.Version, rest: file.Rest,
		saved: map[string]savedContext{}, broken: map[string]error{}, raw: map[string]jsontext.Value{},
	}

	for name, raw := range file.Contexts {
		var one savedContext
		if err := strictjson.Unmarshal(raw, &one); err != nil {
			// One broken context doesn't make the others unusable, and its text is kept.
			parsed.broken[name] = err
			parsed.raw[name] = raw
			one = savedContext{}
		}

		parsed.All[name] = one.Profile
		parsed.saved[name] = one
	}

	return parsed, nil
}

// text returns the file. Members that this release doesn't know stay, and so do broken contexts
// that were not replaced.
func (c *contexts) text() ([]byte, error) {
	file := contextsFile{
		Version: max(c.version, contextsVersion), Current: c.Current,
		Contexts: map[string]jsontext.Value{}, Rest: c.rest,
	}

	for name, profile := range c.All {
		// The profile is empty unless the broken context was replaced, so its text is written back.
		if raw := c.raw[name]; raw != nil && profile == (Profile{}) {
			file.Contexts[name] = raw
			continue
		}

		raw, err := json.Marshal(savedContext{profile, c.saved[name].Rest})
		if err != nil {
			return nil, err
		}

		file.Contexts[name] = raw
	}

	return json.Marshal(file, json.Deterministic(true), jsontext.WithIndent("  "))
}

func (c *contexts) names() []string { return slices.Sorted(maps.Keys(c.All)) }

// A contextStore reads and writes the user's contexts.
type contextStore struct {
	configDir func() (string, error) // of the user; may be nil
}

func (s contextStore) path() (string, error) {
	if s.configDir == nil {
		return "", errors.New("this user has no configuration directory")
	}

	dir, err := s.configDir()

	return filepath.Join(dir, "roster", "contexts.json"), err
}

// read returns the saved contexts; an empty set if the file doesn't exist.
func (s contextStore) read() (contexts, error) {
	none := contexts{All: map[string]Profile{}}

	path, err := s.path()
	if err != nil {
		// A system account without a home has no contexts.
		return none, nil
	}

	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return none, nil
	}

	saved := none
	if err == nil {
		saved, err = parseContexts(text)
	}

	if err != nil {
		return none, cli.Failed(cli.ExitFailed, "cannot read the saved contexts: %w", err).
			WithHint("Repair or remove %s.", path)
	}

	return saved, nil
}

// save adds or replaces one context. The first one becomes the current one.
func (s contextStore) save(saved contexts, name string, profile Profile) error {
	saved.All[name] = profile
	saved.Current = cmp.Or(saved.Current, name)

	return s.write(saved)
}

// write replaces the file as a whole.
func (s contextStore) write(saved contexts) error {
	path, err := s.path()
	if err != nil {
		return cli.Failed(cli.ExitFailed, "cannot save contexts: %w", err)
	}

	text, err := saved.text()

	// The contexts name keys and tokens, so only their user may read them.
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}

	// A command that reads meanwhile gets the old file or the new one as a whole.
	if err == nil {
		err = durable.WriteFile(path, append(text, '\n'), 0o600)
	}

	if err != nil {
		return cli.Failed(cli.ExitFailed, "cannot save contexts: %w", err)
	}

	return nil
}

// ContextOf returns the name of a saved context for a domain: one that names it, else one with an
// address at host, HOST[:PORT]. It returns "" if no context matches, or the contexts can't be read.
func (s *Session) ContextOf(domain, host string) string {
	saved, err := s.settings.store.read()
	if err != nil {
		return ""
	}

	for _, name := range saved.names() {
		if domain != "" && saved.All[name].Domain == domain {
			return name
		}
	}

	for _, name := range saved.names() {
		for address := range strings.SplitSeq(saved.All[name].Address, ",") {
			if at, err := url.Parse(strings.TrimSpace(address)); err == nil && host != "" && at.Host == host {
				return name
			}
		}
	}

	return ""
}
