package main

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"
)

// A profile is what a context holds: the values of the connection's flags.
type profile struct {
	Address string `json:"address"`
	Bundle  string `json:"bundle,omitzero"`
	Cert    string `json:"cert,omitzero"`
	Key     string `json:"key,omitzero"`
	API     string `json:"workload_api,omitzero"`
	WIT     string `json:"wit,omitzero"`
	WITKey  string `json:"wit_key,omitzero"`
	Token   string `json:"token_file,omitzero"`
}

// of returns the value of a connection's flag.
func (p *profile) of(name string) *string {
	return map[string]*string{"address": &p.Address, "bundle": &p.Bundle, "cert": &p.Cert, "key": &p.Key,
		"workload-api": &p.API, "wit": &p.WIT, "wit-key": &p.WITKey, "token-file": &p.Token}[name]
}

// contexts are the file that holds them all.
type contexts struct {
	Current string             `json:"current"`
	All     map[string]profile `json:"contexts"`
}

// contextFile is where the contexts are, for this user.
func (c *connection) contextFile() (string, error) {
	if c.configDir == nil {
		return "", errors.New("there is no configuration directory")
	}
	dir, err := c.configDir()
	return filepath.Join(dir, "roster", "contexts.json"), err
}

// readContexts reads the file; without one there are no contexts.
func (c *connection) readContexts() (contexts, error) {
	all := contexts{All: map[string]profile{}}
	file, err := c.contextFile()
	if err != nil {
		return all, nil // a system account without a home has no contexts
	}
	b, err := os.ReadFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return all, nil
	case err == nil:
		err = json.Unmarshal(b, &all, json.RejectUnknownMembers(true))
	}
	if err != nil {
		return all, failed(exitFailed, "the contexts can't be read: %w", err).because("They are in %s. Repair it, or remove it to begin anew.", file)
	}
	return all, nil
}

// writeContexts puts the file in the place of the old one, whole.
func (c *connection) writeContexts(all contexts) error {
	file, err := c.contextFile()
	if err != nil {
		return failed(exitFailed, "contexts can't be kept: %w", err)
	}
	b, err := json.Marshal(all, json.Deterministic(true), jsontext.WithIndent("  "))
	if err == nil {
		err = os.MkdirAll(filepath.Dir(file), 0o700)
	}
	if err == nil {
		err = os.WriteFile(file+".new", append(b, '\n'), 0o600)
	}
	if err == nil {
		err = os.Rename(file+".new", file)
	}
	if err != nil {
		return failed(exitFailed, "the contexts can't be written: %w", err)
	}
	return nil
}

// choose finds out which context is meant: the one that --context or
// ROSTER_CONTEXT names, else the current one, else none.
func (a *app) choose() error {
	all, err := a.readContexts()
	if err != nil {
		return err
	}
	name := all.Current
	if asked := a.setting("context"); asked != "" {
		name = asked
	}
	p, ok := all.All[name]
	if !ok && name != "" {
		return usage("there is no context called %q", name).because("--context, ROSTER_CONTEXT or the file names it.").try(a.program + " context list")
	}
	a.chosen = p
	return nil
}

// completeContext tells a shell which contexts there are.
func (a *app) completeContext(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	all, err := a.readContexts()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return slices.Sorted(maps.Keys(all.All)), cobra.ShellCompDirectiveNoFileComp
}

func (a *app) contextCommand() *cobra.Command {
	one := func(use, short, long string, do func(name string, all contexts) error) *cobra.Command {
		return &cobra.Command{Use: use + " NAME", Short: short, Long: long, Args: needs("NAME"), RunE: func(_ *cobra.Command, args []string) error {
			all, err := a.readContexts()
			if err != nil {
				return err
			}
			if _, ok := all.All[args[0]]; !ok && use != "set" {
				return failed(exitNotFound, "there is no context called %q", args[0]).try(a.command("context", "list"))
			}
			return do(args[0], all)
		}}
	}
	none := func(use, short, long string, do func() error) *cobra.Command {
		return &cobra.Command{Use: use, Short: short, Long: long, Args: needs(), RunE: func(*cobra.Command, []string) error { return do() }}
	}
	return group("context", "Keep names for directories and for who you are there",
		none("list", "List the contexts", "", a.listContexts),
		none("show", "Show what commands would use now, and what says so",
			"Show what commands would use now: a flag's value, else the environment's, else the\ncontext's. A context that --context names takes the environment's place.", a.showContext),
		one("set", "Make a context, or change one",
			`Make a context of what flags and environment say, or change one by them. The first
one is used from then on.`, a.setContext),
		one("use", "Use a context from now on", "", func(name string, all contexts) error {
			all.Current = name
			return a.writeContexts(all)
		}),
		one("remove", "Forget a context", "", func(name string, all contexts) error {
			delete(all.All, name)
			if all.Current == name {
				all.Current = ""
			}
			return a.writeContexts(all)
		}),
	)
}

func (a *app) listContexts() error {
	all, err := a.readContexts()
	if err != nil {
		return err
	}
	type item struct {
		Name    string `json:"name"`
		Current bool   `json:"current"`
		profile
	}
	list := struct {
		Contexts []item `json:"contexts"`
	}{[]item{}}
	t := table{head: []string{"CONTEXT", "CURRENT", "ADDRESS", "CERT", "+BUNDLE", "+KEY"}}
	for _, name := range slices.Sorted(maps.Keys(all.All)) {
		p := all.All[name]
		list.Contexts = append(list.Contexts, item{name, name == all.Current, p})
		mark := ""
		if name == all.Current {
			mark = "*"
		}
		t.rows = append(t.rows, []string{name, mark, p.Address, p.Cert, p.Bundle, p.Key})
	}
	if len(t.rows) == 0 {
		a.note("There are no contexts; %s makes one.", a.command("context", "set", "NAME", "--address", "https://HOST"))
	}
	return a.printOwn(list, "contexts", t)
}

func (a *app) showContext() error {
	if err := a.choose(); err != nil {
		return err
	}
	type item struct {
		Name  string `json:"name"`
		Value string `json:"value"`
		From  string `json:"from"` // flag, environment, context, or empty
	}
	list := struct {
		Settings []item `json:"settings"`
	}{}
	t := table{head: []string{"SETTING", "VALUE", "FROM"}}
	for _, s := range settings[1:] {
		value, from := a.settingFrom(s.flag)
		list.Settings = append(list.Settings, item{s.flag, value, from})
		t.rows = append(t.rows, []string{s.flag, value, from})
	}
	return a.printOwn(list, "settings", t)
}

func (a *app) setContext(name string, all contexts) error {
	p := all.All[name]
	for _, s := range settings[1:] {
		value, from := a.settingFrom(s.flag)
		if from == "" {
			continue
		}
		if s.flag != "address" && s.flag != "workload-api" && value != "" && (s.flag != "wit" || value != witOfWorkload) {
			var err error
			if value, err = filepath.Abs(value); err != nil {
				return err
			}
		}
		*p.of(s.flag) = value
	}
	a.chosen = p
	if _, err := a.baseURL(); err != nil {
		return err
	}
	all.All[name] = p
	if all.Current == "" {
		all.Current = name
	}
	return a.writeContexts(all)
}
