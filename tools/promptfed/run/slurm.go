package run

import (
	"strconv"
	"strings"
)

// member is a task of a job of several.
type member struct {
	rank, tasks int
	job         string // a name that all tasks of the job have
	slurm       string // the job's number in Slurm; empty elsewhere
	restarts    int    // how often the job was queued again
	processors  int    // that the task may use; 0 for all
	devices     int    // GPUs that the task may use
}

// fromSlurm reads what srun tells a task in its environment: SLURM_PROCID, SLURM_NTASKS (SLURM_STEP_NUM_TASKS of a step
// with fewer), SLURM_CPUS_PER_TASK, SLURM_RESTART_COUNT, SLURM_JOB_ID with SLURM_STEP_ID, and CUDA_VISIBLE_DEVICES. A
// program that srun did not start is the only task.
func fromSlurm(get func(string) string) member {
	number := func(name string, otherwise int) int {
		n, err := strconv.Atoi(get(name))
		if err != nil {
			return otherwise
		}
		return n
	}
	m := member{tasks: 1, job: "job"}
	if get("SLURM_PROCID") == "" || get("SLURM_JOB_ID") == "" {
		return m
	}
	m.rank, m.slurm = number("SLURM_PROCID", -1), get("SLURM_JOB_ID")
	m.tasks = number("SLURM_STEP_NUM_TASKS", number("SLURM_NTASKS", 1))
	m.job = m.slurm
	if step := get("SLURM_STEP_ID"); step != "" {
		m.job += "." + step
	}
	m.restarts = max(0, number("SLURM_RESTART_COUNT", 0))
	m.processors = max(0, number("SLURM_CPUS_PER_TASK", 0))
	if list := get("CUDA_VISIBLE_DEVICES"); list != "" && list != "NoDevFiles" && list != "-1" {
		m.devices = len(strings.Split(list, ","))
	}
	return m
}
