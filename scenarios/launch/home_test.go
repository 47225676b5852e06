package launch_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/roster-mesh/roster/scenarios/launch"
)

func TestNothingOfTheUsersIsSeen(t *testing.T) {
	users := t.TempDir()
	if err := os.WriteFile(filepath.Join(users, "settings"), nil, 0o600); err != nil {
		t.Fatal(err)
	}

	t.Setenv("XDG_CONFIG_HOME", users)
	t.Setenv("GOENV", "")
	t.Setenv("ROSTER_ADDRESS", "https://directory.example")
	t.Setenv("ROSTER_CONTEXT", "production")
	t.Setenv("SPIFFE_ENDPOINT_SOCKET", "unix:///run/spire/agent.sock")

	remove, err := launch.Isolate()
	if err != nil {
		t.Fatal(err)
	}

	dir, err := os.UserConfigDir()
	if err != nil || dir == users {
		t.Fatal(dir, err)
	}

	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}

	for _, name := range []string{"ROSTER_ADDRESS", "ROSTER_CONTEXT", "SPIFFE_ENDPOINT_SOCKET"} {
		if value, is := os.LookupEnv(name); is {
			t.Errorf("%s is %s", name, value)
		}
	}

	if got, want := os.Getenv("GOENV"), filepath.Join(users, "go", "env"); got != want {
		t.Errorf("GOENV is %s, want %s", got, want)
	}

	remove()

	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s is left: %v", dir, err)
	}
}
