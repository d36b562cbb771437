/interface ethernet switch qos priority-flow-control
set roce-pfc traffic-class=4
