package apiserver

import (
	"os"
	"path/filepath"
	"testing"

	"rsc.io/script"
	"rsc.io/script/scripttest"

	"watchlab/bench/e2e/programs"
)

// TestKubectl plays testdata/kubectl.txt: common kubectl commands, against a server for each "serve".
func TestKubectl(t *testing.T) {
	kubectl := programs.Pinned(t, "kubectl")
	root := must(programs.Root())(t)
	first := serve(t)
	engine := &script.Engine{Cmds: scripttest.DefaultCmds(), Conds: scripttest.DefaultConds()}
	engine.Cmds["kubectl"] = script.Program(kubectl, nil, programs.Patience)
	engine.Cmds["nodes.sh"] = script.Program(filepath.Join(root, "scripts", "kind", "nodes.sh"), nil, programs.Patience)
	engine.Cmds["serve"] = script.Command(script.CmdUsage{Summary: "serve with flags, for the commands that follow", Args: "flags..."},
		func(s *script.State, args ...string) (script.WaitFunc, error) {
			args[len(args)-1] = s.Path(args[len(args)-1])
			return nil, s.Setenv("KUBECONFIG", serve(t, args...).kubeconfig)
		})
	scripttest.Test(t, t.Context(), engine, []string{
		"KUBECONFIG=" + first.kubeconfig, "HOME=" + first.home, "KUBECTL=" + kubectl, "PATH=" + os.Getenv("PATH"),
	}, "testdata/kubectl.txt")
}
