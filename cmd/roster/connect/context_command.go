package connect

import (
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/roster-mesh/roster/cmd/roster/cli"
)

// ContextCommand returns the command that manages saved connections.
func ContextCommand(s Session) *cobra.Command {
	return cli.Group("context", "Manage saved connections (address, certificate, key)",
		listContextsCommand(s),
		showContextCommand(s),
		setContextCommand(s),
		changeContextCommand(s, "use", "Make a context the current one", func(saved *contexts, name string) {
			saved.Current = name
		}),
		changeContextCommand(s, "remove", "Delete a context", func(saved *contexts, name string) {
			delete(saved.All, name)
			if saved.Current == name {
				saved.Current = ""
			}
		}),
	)
}

// completeContext completes the names of contexts in a shell.
func (d *Directory) completeContext(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	saved, err := d.settings.store.read()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return saved.names(), cobra.ShellCompDirectiveNoFileComp
}

func listContextsCommand(s Session) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the saved contexts",
		Args:  cli.Args(),
		RunE:  func(*cobra.Command, []string) error { return listContexts(s) },
	}
}

// A listedContext is one context as -o json prints it.
type listedContext struct {
	Name    string `json:"name"`
	Current bool   `json:"current"`
	profile
}

func listContexts(s Session) error {
	saved, err := s.settings.store.read()
	if err != nil {
		return err
	}

	list := struct {
		Contexts []listedContext `json:"contexts"`
	}{[]listedContext{}}
	t := cli.Table{Head: []string{"CONTEXT", "CURRENT", "ADDRESS", "CERT", "+BUNDLE", "+KEY"}}
	for _, name := range saved.names() {
		p := saved.All[name]
		mark := ""
		if name == saved.Current {
			mark = "*"
		}
		list.Contexts = append(list.Contexts, listedContext{name, name == saved.Current, p})
		t.Add(name, mark, p.Address, p.Cert, p.Bundle, p.Key)
	}
	if len(t.Rows) == 0 {
		s.Note("No saved contexts. Save one: %s", s.CommandLine("context", "set", "NAME", "--address", "https://HOST"))
	}

	return s.PrintValue(list, "contexts", t)
}

func showContextCommand(s Session) *cobra.Command {
	return &cobra.Command{
		Use:   "show",
		Short: "Show the connection settings in force and their origin",
		Long: `Show the connection settings in force and whether each comes from a flag, the
environment or the context. A flag wins over the environment, and the environment over
the current context. A context that --context names replaces the environment.`,
		Args: cli.Args(),
		RunE: func(*cobra.Command, []string) error { return showContext(s) },
	}
}

func showContext(s Session) error {
	if err := s.UseContext(); err != nil {
		return err
	}

	type setting struct {
		Name  string `json:"name"`
		Value string `json:"value"`
		From  string `json:"from"` // flag, environment, context, or empty
	}
	list := struct {
		Settings []setting `json:"settings"`
	}{}
	t := cli.Table{Head: []string{"SETTING", "VALUE", "FROM"}}
	for _, d := range definitions[1:] {
		value, origin := s.settings.valueAndOrigin(d.flag)
		list.Settings = append(list.Settings, setting{d.flag, value, origin})
		t.Add(d.flag, value, origin)
	}

	return s.PrintValue(list, "settings", t)
}

func setContextCommand(s Session) *cobra.Command {
	return &cobra.Command{
		Use:   "set NAME",
		Short: "Save the given connection settings as a context",
		Long: `Save connection settings from flags and the environment as a context, or change one.
The first context that you save becomes the current one.`,
		Example: "  roster context set alpha --address https://ad.alpha.test:8400 --bundle alpha.pem --cert me.pem --key me.key",
		Args:    cli.Args("NAME"),
		RunE:    func(_ *cobra.Command, args []string) error { return setContext(s, args[0]) },
	}
}

func setContext(s Session, name string) error {
	saved, err := s.settings.store.read()
	if err != nil {
		return err
	}

	p := saved.All[name]
	for _, d := range definitions[1:] {
		value, origin := s.settings.valueAndOrigin(d.flag)
		if origin == "" {
			continue
		}
		if isFileSetting(d.flag, value) {
			if value, err = filepath.Abs(value); err != nil {
				return err
			}
		}
		*p.field(d.flag) = value
	}
	s.settings.selected = p
	if _, err := s.BaseURL(); err != nil {
		return err
	}

	saved.All[name] = p
	if saved.Current == "" {
		saved.Current = name
	}

	return s.settings.store.write(saved)
}

// isFileSetting reports whether the value of a setting is the path of a file.
func isFileSetting(flag, value string) bool {
	switch flag {
	case flagAddress, flagWorkloadAPI:
		return false
	case flagWIT:
		return value != "" && value != witOfWorkloadAPI
	}
	return value != ""
}

// changeContextCommand returns a command that changes one existing context.
func changeContextCommand(
	s Session, verb, short string, change func(saved *contexts, name string),
) *cobra.Command {
	return &cobra.Command{
		Use:   verb + " NAME",
		Short: short,
		Args:  cli.Args("NAME"),
		RunE: func(_ *cobra.Command, args []string) error {
			saved, err := s.settings.store.read()
			if err != nil {
				return err
			}
			if _, ok := saved.All[args[0]]; !ok {
				return cli.Failed(cli.ExitNotFound, "unknown context %q", args[0]).
					WithNext(s.CommandLine("context", "list"))
			}
			change(&saved, args[0])

			return s.settings.store.write(saved)
		},
	}
}
