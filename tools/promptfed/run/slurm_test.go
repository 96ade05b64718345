package run

import "testing"

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
