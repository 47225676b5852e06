package deploy

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Bounds of the program and of all files of the image, in bytes.
const (
	maxProgram = 40_000_000
	maxImage   = 45_000_000
)

// An image is the built image, unpacked.
type image struct {
	root   string
	config imageConfig
	files  map[string]fs.FileInfo // as built; mount points come later
}

// An imageConfig is the part of an OCI image's configuration that a runtime follows.
type imageConfig struct {
	User       string
	Entrypoint []string
	Cmd        []string
	WorkingDir string
	Volumes    map[string]struct{}
}

// builtImage builds the image once, by deploy/image with buildah.
var builtImage = sync.OnceValues(func() (*image, error) {
	path, err := roster()
	if err != nil {
		return nil, err
	}

	dir, err := scratch()
	if err != nil {
		return nil, err
	}

	// A storage of its own: no image of the machine is touched.
	store := filepath.Join(dir, "storage")
	configuration := filepath.Join(store, "storage.conf")
	if err := os.MkdirAll(store, 0o755); err != nil {
		return nil, err
	}

	text := fmt.Sprintf("[storage]\ndriver = \"vfs\"\ngraphroot = %q\nrunroot = %q\n",
		filepath.Join(store, "graph"), filepath.Join(store, "run"))
	if err := os.WriteFile(configuration, []byte(text), 0o600); err != nil {
		return nil, err
	}

	call := func(name string, args ...string) (string, error) {
		command := exec.Command(name, args...)
		command.Env = append(os.Environ(), "CONTAINERS_STORAGE_CONF="+configuration, "BUILDAH_ISOLATION=chroot",
			"BUILDER=buildah", "ROSTER="+path)
		out, err := command.Output()

		if failed, ok := err.(*exec.ExitError); ok {
			err = fmt.Errorf("%s %v: %w\n%s%s", name, args, err, out, failed.Stderr)
		}

		return strings.TrimSpace(string(out)), err
	}

	if _, err := call("../image", "roster:test"); err != nil {
		return nil, err
	}

	built := &image{}

	description, err := call("buildah", "inspect", "--type", "image", "roster:test")
	if err != nil {
		return nil, err
	}

	var inspected struct {
		OCIv1 struct{ Config imageConfig }
	}
	if err := json.Unmarshal([]byte(description), &inspected); err != nil {
		return nil, err
	}

	built.config = inspected.OCIv1.Config

	container, err := call("buildah", "from", "roster:test")
	if err != nil {
		return nil, err
	}

	if built.root, err = call("buildah", "mount", container); err != nil {
		return nil, err
	}

	built.files = map[string]fs.FileInfo{}
	err = filepath.WalkDir(built.root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}

		built.files[strings.TrimPrefix(path, built.root)], err = entry.Info()

		return err
	})

	return built, err
})

// unpacked returns the image, or skips the test.
func unpacked(t *testing.T) *image {
	t.Helper()
	tool(t, "buildah")
	asRoot(t)

	built, err := builtImage()
	must(t, err)

	return built
}

// A mount makes a path of the machine a path of a container.
type mount struct {
	source, target string
	readOnly       bool
}

// container returns a command of the image as a runtime would start it: with the image's
// root, read-only but for the mounts, as the image's account, which has no capabilities, on
// the machine's network.
func (i *image) container(mounts []mount, env []string, args ...string) *exec.Cmd {
	var script strings.Builder

	script.WriteString("set -e; root=$1; shift; mount --bind \"$root\" \"$root\";\n")

	for _, m := range append([]mount{{"/proc", "/proc", false}}, mounts...) {
		fmt.Fprintf(&script, "mount --bind '%s' \"$root%s\";\n", m.source, m.target)

		if m.readOnly {
			fmt.Fprintf(&script, "mount -o remount,ro,bind \"$root%s\";\n", m.target)
		}
	}

	// remount acts on this mount alone, so the mounts inside stay writable.
	script.WriteString("mount -o remount,ro,bind \"$root\";\n")
	script.WriteString("cd \"$root\"; exec setpriv --no-new-privs " +
		"chroot --userspec=\"$USERSPEC\" \"$root\" \"$@\"\n")

	if len(args) == 0 {
		args = i.config.Cmd
	}

	command := exec.Command("unshare", append([]string{"--mount", "--propagation", "private", "sh", "-c",
		script.String(), "sh", i.root}, append(slices.Clone(i.config.Entrypoint), args...)...)...)
	command.Env = append(env, "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "USERSPEC="+i.config.User)

	return command
}

// volume makes an empty directory that the image's account owns, as a runtime does for a
// volume over a directory of the image.
func (i *image) volume(t *testing.T) string {
	t.Helper()

	dir := t.TempDir()

	// The parents that testing makes are closed to others.
	for _, each := range []string{filepath.Dir(dir), dir} {
		must(t, os.Chmod(each, 0o755))
	}

	must(t, os.Chown(dir, 65532, 65532))

	return dir
}

// mountPoint makes a file or directory in the image's root for a mount.
func (i *image) mountPoint(t *testing.T, target string, isDir bool) {
	t.Helper()

	path := filepath.Join(i.root, target)
	if isDir {
		must(t, os.MkdirAll(path, 0o755))

		return
	}

	must(t, os.MkdirAll(filepath.Dir(path), 0o755))

	file, err := os.OpenFile(path, os.O_CREATE, 0o644)
	must(t, err)

	_ = file.Close()
}

// Requirement: OPS-010, OPS-026
func TestTheImageIsSmallAndHasNothingButTheBinary(t *testing.T) {
	built := unpacked(t)

	var size int64
	for name, file := range built.files {
		size += file.Size()

		if file.Mode()&(fs.ModeSetuid|fs.ModeSetgid|0o022) != 0 {
			t.Errorf("%s has mode %v", name, file.Mode())
		}
	}

	t.Logf("the image has %d bytes", size)

	if size > maxImage {
		t.Errorf("the image has %d bytes, over %d", size, maxImage)
	}

	if program := built.files["/roster"].Size(); program > maxProgram {
		t.Errorf("the program has %d bytes, over %d", program, maxProgram)
	}

	files := slices.Sorted(maps.Keys(built.files))
	if want := []string{"/etc/ssl/certs/ca-certificates.crt", "/roster"}; !slices.Equal(files, want) {
		t.Errorf("the image has the files %v, want %v", files, want)
	}

	if built.config.User != "65532:65532" {
		t.Errorf("the image runs as %q", built.config.User)
	}

	if _, ok := built.config.Volumes["/data"]; !ok {
		t.Errorf("the image declares the volumes %v, not /data", built.config.Volumes)
	}

	built.mountPoint(t, "/proc", true)

	if out := run(t, built.container(nil, nil, "version")); !strings.Contains(out, "linux/") {
		t.Errorf("the image's version says %q", out)
	}
}
