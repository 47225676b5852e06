package connect

import (
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

// contexts are the contents of the file with all contexts.
type contexts struct {
	Current string             `json:"current"`
	All     map[string]Profile `json:"contexts"`
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

// read returns the saved contexts; none if there is no file.
func (s contextStore) read() (contexts, error) {
	saved := contexts{All: map[string]Profile{}}

	path, err := s.path()
	if err != nil {
		return saved, nil // a system account without a home has no contexts
	}

	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return saved, nil
	case err == nil:
		err = strictjson.Unmarshal(text, &saved, json.RejectUnknownMembers(true))
	}

	if err != nil {
		return saved, cli.Failed(cli.ExitFailed, "cannot read the saved contexts: %w", err).
			WithHint("Repair or remove %s.", path)
	}

	return saved, nil
}

// save adds or replaces one context. The first one becomes the current one.
func (s contextStore) save(saved contexts, name string, profile Profile) error {
	saved.All[name] = profile
	if saved.Current == "" {
		saved.Current = name
	}

	return s.write(saved)
}

// write replaces the file as a whole.
func (s contextStore) write(saved contexts) error {
	path, err := s.path()
	if err != nil {
		return cli.Failed(cli.ExitFailed, "cannot save contexts: %w", err)
	}

	text, err := json.Marshal(saved, json.Deterministic(true), jsontext.WithIndent("  "))
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}

	if err == nil {
		err = os.WriteFile(path+".new", append(text, '\n'), 0o600)
	}

	if err == nil {
		err = os.Rename(path+".new", path)
	}

	if err != nil {
		return cli.Failed(cli.ExitFailed, "cannot save contexts: %w", err)
	}

	return nil
}

// ContextOf returns the name of a saved context for a domain: one that names it, else one with an
// address at host, HOST[:PORT]. It returns nothing if there is none, or the contexts can't be read.
func (s Session) ContextOf(domain, host string) string {
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
