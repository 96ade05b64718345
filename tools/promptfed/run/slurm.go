package run

import (
	"strconv"
	"strings"
)

// member describes a task of a job.
type member struct {
	rank, tasks int
	job         string // name of the job, equal in all tasks
	slurm       string // number of the job in Slurm; empty without Slurm
	restarts    int    // number of times that the job was requeued
	processors  int    // processors of the task; 0 for all
	devices     int    // GPUs of the task
}

// fromSlurm reads the variables that srun sets for a task: SLURM_PROCID, SLURM_NTASKS (SLURM_STEP_NUM_TASKS for a step
// with fewer tasks), SLURM_CPUS_PER_TASK, SLURM_RESTART_COUNT, SLURM_JOB_ID with SLURM_STEP_ID, and
// CUDA_VISIBLE_DEVICES. Without srun the job has one task.
func fromSlurm(get func(string) string) member {
	number := func(name string, otherwise int) int {
		n, err := strconv.Atoi(get(name))
		if err != nil {
			return otherwise
		}
		return n
	}

	task := member{tasks: 1, job: "job"}
	if get("SLURM_PROCID") == "" || get("SLURM_JOB_ID") == "" {
		return task
	}

	task.rank, task.slurm = number("SLURM_PROCID", -1), get("SLURM_JOB_ID")
	task.tasks = number("SLURM_STEP_NUM_TASKS", number("SLURM_NTASKS", 1))
	task.job = task.slurm
	if step := get("SLURM_STEP_ID"); step != "" {
		task.job += "." + step
	}

	task.restarts = max(0, number("SLURM_RESTART_COUNT", 0))
	task.processors = max(0, number("SLURM_CPUS_PER_TASK", 0))
	if list := get("CUDA_VISIBLE_DEVICES"); list != "" && list != "NoDevFiles" && list != "-1" {
		task.devices = len(strings.Split(list, ","))
	}

	return task
}
