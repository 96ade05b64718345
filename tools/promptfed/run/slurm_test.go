package run

import (
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"promptfed/runtime/goldentest"
)

// fromSlurm reads the variables that srun sets in a job of 3 tasks of 4 processors and 2 GPUs.
func TestFromSlurm(t *testing.T) {
	env := map[string]string{"SLURM_JOB_ID": "12", "SLURM_STEP_ID": "3", "SLURM_PROCID": "2", "SLURM_NTASKS": "8",
		"SLURM_STEP_NUM_TASKS": "3", "SLURM_CPUS_PER_TASK": "4", "CUDA_VISIBLE_DEVICES": "0,1",
		"SLURM_RESTART_COUNT": "1"}
	got := fromSlurm(func(name string) string { return env[name] })
	want := member{rank: 2, tasks: 3, job: "12.3", slurm: "12", restarts: 1, processors: 4, devices: 2}
	if got != want {
		t.Errorf("%+v", got)
	}
	if got := fromSlurm(func(string) string { return "" }); got != (member{tasks: 1, job: "job"}) {
		t.Errorf("outside of Slurm: %+v", got)
	}
}

// A task follows the address of a task 0 that listens, and not the one that a killed job left in the folder.
func TestFind(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	goldentest.NoError(t, err)
	flags := launchFlags{meet: t.TempDir(), member: member{job: "job"}, idle: time.Hour}
	text := `{"URL": "tls://` + server.Addr().String() + `", "Job": "job", "Restarts": 0}`
	goldentest.NoError(t, os.WriteFile(flags.meetingFile(), []byte(text), 0o600))
	at, err := flags.find(t.Context())
	goldentest.NoError(t, err)
	server.Close()
	flags.idle = time.Nanosecond
	if _, err := flags.find(t.Context()); err == nil || !strings.HasSuffix(at.URL, server.Addr().String()) ||
		!strings.Contains(err.Error(), "task 0 of job job does not answer at the address in") {
		t.Errorf("%+v, %v", at, err)
	}
}
