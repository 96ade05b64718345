python federated_main.py --trainer GLP_OT --model FedOTP --root /data/sets --dataset cifar100 --backbone RN50 --seed 1 \
  --partition noniid-labeldir100 --beta 0.3 --num_users 100 --frac 0.1 --round 60 --lr 0.001 --gamma 1 \
  --train_batch_size 32 --useall True --n_ctx 16 --num_prompt 2 --eps 0.1 --thresh 0.001 --max_iter 100 --OT COT \
  --top_percent 0.8 OPTIM.MAX_EPOCH 1 OPTIM.NAME sgd OPTIM.LR_SCHEDULER single_step
