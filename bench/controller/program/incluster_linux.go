package program

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// childVariable is the environment variable with the scratch folder that makes this program prepare the
// mount namespace and continue as the program at os.Args[0].
const childVariable = "WATCHLAB_IN_CLUSTER"

// resultFile is the descriptor that the child writes its error to. It closes when the program begins.
const resultFile = 3

// RunChild continues as the program of [InCluster], if this process was started for it. A program that
// calls [Start] calls it at the start of main; a test calls it in TestMain.
func RunChild() {
	dir, ok := os.LookupEnv(childVariable)
	if !ok {
		return
	}
	syscall.CloseOnExec(resultFile)
	err := continueInCluster(dir)
	_, _ = io.WriteString(os.NewFile(resultFile, "result"), err.Error())
	os.Exit(1)
}

// enter makes cmd start this program again, in its own mount namespace. The returned function waits until
// the command runs there.
func (c *InCluster) enter(cmd *exec.Cmd, dir string) (started func() error, err error) {
	self, err := os.Executable()
	if err == nil {
		err = c.write(filepath.Join(dir, accountFolder))
	}
	if err != nil {
		return nil, inClusterError(err)
	}
	out, in, err := os.Pipe()
	if err != nil {
		return nil, inClusterError(err)
	}
	cmd.Env = append(cmd.Env, c.env()...)
	cmd.Env = append(cmd.Env, childVariable+"="+dir)
	// Args keeps the name that the program was called by.
	cmd.Args = append([]string{cmd.Path}, cmd.Args...)
	cmd.Path = self
	cmd.ExtraFiles = []*os.File{in}
	attr := cmd.SysProcAttr
	attr.Cloneflags |= syscall.CLONE_NEWNS
	if os.Geteuid() != 0 {
		// The user stays who they are. The capability is that of the user namespace.
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Geteuid(), HostID: os.Geteuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getegid(), HostID: os.Getegid(), Size: 1}}
		attr.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN}
	}
	return func() error {
		_ = in.Close()
		text, err := io.ReadAll(out)
		_ = out.Close()
		if err == nil && len(text) > 0 {
			err = errors.New(string(text))
		}
		if err != nil {
			return inClusterError(err)
		}
		return nil
	}, nil
}

// continueInCluster replaces this process by the program. It returns only with an error.
func continueInCluster(dir string) error {
	if err := os.Unsetenv(childVariable); err != nil {
		return err
	}
	if err := mountServiceAccount(filepath.Join(dir, accountFolder), filepath.Join(dir, mountFolder)); err != nil {
		return err
	}
	runtime.LockOSThread() // Capabilities are those of a thread.
	if os.Geteuid() != 0 {
		if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
			return fmt.Errorf("capabilities: %w", err)
		}
	}
	return fmt.Errorf("%s: %w", os.Args[1], syscall.Exec(os.Args[0], os.Args[1:], os.Environ()))
}

// mountServiceAccount makes the folder visible at ServiceAccount, in this mount namespace only. scratch is
// the path of a folder to create.
func mountServiceAccount(folder, scratch string) error {
	if err := mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE); err != nil {
		return err
	}
	existing, rest, err := split(ServiceAccount)
	if err != nil || rest == "" {
		return errors.Join(err, mount(folder, existing, "", unix.MS_BIND))
	}
	if existing == "/" {
		return fmt.Errorf("no folder /var for %s", ServiceAccount)
	}
	// The folder above is covered by a new one with the same entries, and the path below it.
	if err := os.MkdirAll(scratch, 0o755); err != nil {
		return err
	}
	if err := mount("tmpfs", scratch, "tmpfs", 0); err != nil {
		return err
	}
	if err := repeatEntries(existing, scratch); err != nil {
		return err
	}
	target := filepath.Join(scratch, rest)
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	if err := mount(folder, target, "", unix.MS_BIND); err != nil {
		return err
	}
	return mount(scratch, existing, "", unix.MS_MOVE)
}

// split returns the deepest existing folder of a path, without symbolic links, and the rest.
func split(path string) (existing, rest string, err error) {
	for existing = path; ; existing = filepath.Dir(existing) {
		resolved, err := filepath.EvalSymlinks(existing)
		if err == nil {
			return resolved, strings.TrimPrefix(path, existing), nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", "", err
		}
	}
}

// repeatEntries mounts each entry of a folder at the same name of another one.
func repeatEntries(from, to string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		source, target := filepath.Join(from, e.Name()), filepath.Join(to, e.Name())
		if e.Type()&fs.ModeSymlink != 0 {
			link, err := os.Readlink(source)
			if err == nil {
				err = os.Symlink(link, target)
			}
			if err != nil {
				return err
			}
			continue
		}
		if e.IsDir() {
			err = os.Mkdir(target, 0o755)
		} else {
			err = os.WriteFile(target, nil, 0o644)
		}
		if err == nil {
			err = mount(source, target, "", unix.MS_BIND|unix.MS_REC)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func mount(source, target, kind string, flags uintptr) error {
	if err := unix.Mount(source, target, kind, flags, ""); err != nil {
		return fmt.Errorf("mount at %s: %w", target, err)
	}
	return nil
}
