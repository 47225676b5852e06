package main

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
)

// A buildVersion says from which source this program was built.
type buildVersion struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"` // of the version control system
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func versionCommand(session *connect.Session) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the program's version",
		Args:  cli.Args(),
		RunE: func(*cobra.Command, []string) error {
			version := readVersion()
			t := cli.Table{Head: []string{"VERSION", "REVISION", "GO", "PLATFORM"}}
			t.Add(version.Version, version.Revision, version.Go, version.Platform)

			return session.PrintValue(version, "", t)
		},
	}
}

func readVersion() buildVersion {
	version := buildVersion{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}

	info, ok := debug.ReadBuildInfo()
	if !ok {
		return version
	}

	version.Version = info.Main.Version
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			version.Revision = setting.Value
		}
	}

	return version
}
